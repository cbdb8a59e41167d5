#include "trireme/config/schema/setting.hpp"

#include <string>

#include <gtest/gtest.h>

#include "trireme/base/utf8.hpp"
#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

TEST(Place, IsAFileWithItsLineOrANote) {
  EXPECT_EQ(str(Place{"run.toml", 33, 5, ""}), "run.toml:33");
  EXPECT_EQ(str(Place{"config.json", 0, 0, ""}), "config.json");
  EXPECT_EQ(str(Place{"", 0, 0, "--parallelism.tp 8"}), "--parallelism.tp 8");
}

TEST(Value, IsPrintedAsTomlWritesIt) {
  EXPECT_EQ(str(Value{Nothing{}}), "");
  EXPECT_EQ(str(Value{"a\"b"}), R"("a\"b")");
  EXPECT_EQ(str(Value{std::int64_t{-3}}), "-3");
  EXPECT_EQ(str(Value{0.1}), "0.1");
  EXPECT_EQ(str(Value{true}), "true");
  EXPECT_EQ(str(Value{RawText{"as it is"}}), "as it is");
  EXPECT_EQ(str(Value{Values{{std::int64_t{1}}, {"two"}, {Values{{false}}}}}), R"([1, "two", [false]])");
}

TEST(Value, HasAKindForMessages) {
  EXPECT_EQ(kind_of({Nothing{}}), "nothing");
  EXPECT_EQ(kind_of({"x"}), "a string");
  EXPECT_EQ(kind_of({std::int64_t{1}}), "a whole number");
  EXPECT_EQ(kind_of({1.5}), "a number");
  EXPECT_EQ(kind_of({true}), "true or false");
  EXPECT_EQ(kind_of({Values{}}), "a list");
  EXPECT_EQ(kind_of({RawText{"x"}}), "a string");
}

TEST(Shortened, KeepsShortTextsAndCutsLongOnesBetweenCharacters) {
  EXPECT_EQ(shortened("short"), "short");
  EXPECT_EQ(shortened(std::string(80, 'x')), std::string(80, 'x'));
  EXPECT_EQ(shortened(std::string(81, 'x')), std::string(80, 'x') + "…");
  EXPECT_EQ(shortened("ü☃😀z", 3), "ü☃😀…");
  EXPECT_EQ(shortened("a\nb\x1b[31m"), "a\\x0ab\\x1b[31m");
  EXPECT_EQ(shortened("\xff"), "\uFFFD");
  EXPECT_EQ(display_width(brief({std::string(1 << 16, 'x')})), 81U);
  EXPECT_EQ(display_width(brief({Values(1 << 16, whole(7))})), 81U);
  EXPECT_EQ(brief({Values(3, whole(7))}), "[7, 7, 7]");
}

TEST(AddSetting, HasALimit) {
  Settings settings(9'999);
  add_setting("x.toml", settings, {"a", whole(1), {}});
  EXPECT_EQ(settings.size(), 10'000U);
  EXPECT_EQ(message_of<ConfigError>([&] { add_setting("x.toml", settings, {"a", whole(1), {}}); }),
            "x.toml holds more than 10000 settings: this is not a config");
}

}  // namespace
}  // namespace trireme::config
