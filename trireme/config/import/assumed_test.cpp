#include "trireme/config/import/assumed.hpp"

#include <string>

#include <gtest/gtest.h>

#include "trireme/config/settings/convert.hpp"
#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

/// Each is one of our keys with a valid value that differs from our default.
TEST(Assumed, ValuesAreOursButNotOurDefaults) {
  for (const Framework framework : {Framework::nanotron, Framework::torchtitan, Framework::megatron,
                                    Framework::deepspeed, Framework::hf_trainer, Framework::hf_config}) {
    for (const auto& [key, value] : assumed(framework)) {
      Config config;
      const std::string standard = value_of(config, key);
      EXPECT_NE(standard, "no such key") << key;
      for (const Field& field : fields(config)) {
        if (field.key == key) {
          EXPECT_EQ(assign_value(field, value), "") << key;
        }
      }
      EXPECT_NE(value_of(config, key), standard) << name(framework) << " " << key;
    }
  }
}

}  // namespace
}  // namespace trireme::config
