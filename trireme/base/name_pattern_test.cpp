#include "trireme/base/name_pattern.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(NamePattern, AWordAGlobOrARegularExpression) {
  const std::string name = "layers.3.attention_norm.weight";
  for (const char* pattern : {"norm", "layers.3", "layers.*.attention_norm.weight", "*norm*", "layers.[0-4].*",
                              "layers.?.attention_norm.weight", "re:norm", "re:^layers\\.[0-9]+\\.attention_norm"})
    EXPECT_TRUE(NamePattern(pattern).matches(name)) << pattern;
  for (const char* pattern :
       {"Norm", "layers.4", "norm*", "*norm", "layers.[4-9].*", "re:^norm", "re:bias$", ".*norm.*"})
    EXPECT_FALSE(NamePattern(pattern).matches(name)) << pattern;
}

TEST(NamePattern, ABadRegularExpressionIsNamed) {
  EXPECT_THAT(message_of<ConfigError>([] { NamePattern("re:(norm"); }),
              HasSubstr("\"(norm\" is not a regular expression"));
  EXPECT_THAT(message_of<ConfigError>([] { NamePattern("re:" + std::string(200'000, '(')); }),
              HasSubstr("200000 characters: at most 1000"));
}

TEST(NamePattern, NearestNamesShareTheLongestPart) {
  const std::vector<std::string> names = {"embedding.weight",          "layers.0.attention_norm.weight",
                                          "layers.0.mlp.up.weight",    "layers.0.mlp_norm.weight",
                                          "layers.11.mlp_norm.weight", "norm.weight"};
  EXPECT_EQ(nearest_names("re:.*token_embedding.*", names).front(), "embedding.weight");
  EXPECT_THAT(nearest_names("layernorm", names),
              ElementsAre("layers.*.attention_norm.weight", "layers.*.mlp.up.weight", "layers.*.mlp_norm.weight"));
  EXPECT_THAT(nearest_names("nrom", names),
              ElementsAre("layers.*.attention_norm.weight", "layers.*.mlp_norm.weight", "norm.weight"));
}

}  // namespace
}  // namespace trireme
