#include "trireme/config/read/starter.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/config/schema/presets.hpp"
#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

using ::testing::HasSubstr;

TEST(Starter, OfEveryPresetPassesTheRules) {
  for (const std::string& preset : preset_names()) {
    const std::string toml = starter_toml(preset, "");
    EXPECT_EQ(error_of(toml), "no error") << toml;
    EXPECT_EQ(load(toml).config.model.preset, preset);
  }
}

TEST(Starter, OfAFolder) {
  LoadedConfig loaded = load_good(starter_toml("", testdata_path("hf/qwen3-0.6b")));
  EXPECT_EQ(loaded.config.model.hidden_size, 1024);
  EXPECT_EQ(loaded.config.model.init, "random");
  EXPECT_EQ(loaded.config.training.seq_len, 4096);
}

TEST(Starter, NeedsOneModel) {
  EXPECT_THAT(message_of<ConfigError>([] { starter_toml("", ""); }), HasSubstr("--preset NAME"));
  EXPECT_THAT(message_of<ConfigError>([] { starter_toml("gpt2", "x"); }), HasSubstr("--preset NAME"));
  EXPECT_THAT(message_of<ConfigError>([] { starter_toml("lama3-8b", ""); }), HasSubstr("did you mean"));
  EXPECT_THAT(message_of<ConfigError>([] { starter_toml("", "no-such-folder"); }), HasSubstr("no-such-folder"));
}

}  // namespace
}  // namespace trireme::config
