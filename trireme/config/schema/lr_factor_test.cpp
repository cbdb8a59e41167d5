#include "trireme/config/schema/lr_factor.hpp"

#include <gtest/gtest.h>

#include "trireme/base/error.hpp"

namespace trireme::config {
namespace {

TEST(LrFactor, IsAPatternAndANumber) {
  EXPECT_EQ(parse_lr_factor("embedding 0.1").pattern, "embedding");
  EXPECT_EQ(parse_lr_factor("embedding 0.1").factor, 0.1);
  EXPECT_EQ(parse_lr_factor("re:layers\\.(0|1)\\. 2").pattern, "re:layers\\.(0|1)\\.");
  EXPECT_EQ(parse_lr_factor("*.bias 0").factor, 0);
  EXPECT_EQ(parse_lr_factor("embedding \t 0.1").pattern, "embedding");
  for (const char* wrong : {"", " ", "embedding", "embedding ", " 0.1", "  0.1", "embedding x", "embedding 0.1x",
                            "embedding -1", "embedding nan", "embedding inf", "re:( 1"})
    EXPECT_THROW(parse_lr_factor(wrong), ConfigError) << wrong;
}

TEST(LrFactor, OfTheFirstThatMatches) {
  const std::vector<std::string> factors = {"layers.1.mlp 0.5", "layers.1 2"};
  EXPECT_EQ(lr_factor_of("layers.1.mlp.down.weight", factors), 0.5);
  EXPECT_EQ(lr_factor_of("layers.1.attention.out.weight", factors), 2);
  EXPECT_EQ(lr_factor_of("layers.0.mlp.down.weight", factors), 1);
}

}  // namespace
}  // namespace trireme::config
