#include "trireme/config/settings/json_file.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/config/settings/toml_file.hpp"
#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> json_lines(const Settings& settings) {
  std::vector<std::string> out;
  for (const Setting& s : settings) out.push_back(text(s.path, " = ", str(s.value), " is ", kind_of(s.value)));
  return out;
}

std::string json_refusal(const std::string& json) {
  return message_of<ConfigError>([&] { parse_json("x.json", json); });
}

TEST(ParseJson, GivesDottedPaths) {
  const Settings settings = parse_json("x.json", R"({
    "a": 1, "b": {"c": 0.5, "d": {}}, "e": null, "f": [{"g": true}, {"g": false}], "h": [1, "x", [2]], "i": [],
    "j": [1, {"k": 2}], "l": "ü"})");
  EXPECT_THAT(
      json_lines(settings),
      ElementsAre("a = 1 is a whole number", "b.c = 0.5 is a number", "b.d =  is nothing", "e =  is nothing",
                  "f.0.g = true is true or false", "f.1.g = false is true or false", "h = [1, \"x\", [2]] is a list",
                  "i = [] is a list", R"(j = [1, "{\"k\":2}"] is a list)", "l = \"ü\" is a string"));
  EXPECT_EQ(str(settings[0].place), "x.json");
}

TEST(ParseJson, NamesWhatIsWrongAndTheLine) {
  EXPECT_EQ(json_refusal("[1]"), "x.json is not a JSON object");
  EXPECT_EQ(json_refusal("{\"a\": 1,\n \"a\": 2}"), "x.json: the key \"a\" is given twice");
  EXPECT_THAT(json_refusal("{\"a\": 1,\n b}"), HasSubstr("this is not JSON: "));
  EXPECT_THAT(json_refusal("{\"a\": 1,\n b}"), HasSubstr("\n  --> x.json:2"));
  EXPECT_THAT(json_refusal("{\"a\": 18446744073709551615}"), HasSubstr("does not fit 64 bits"));
  EXPECT_THAT(json_refusal("{\"a\": 1e400}"), HasSubstr("number overflow"));
  EXPECT_THAT(json_refusal("{\"a\": NaN}"), HasSubstr("this is not JSON"));
  EXPECT_THAT(json_refusal(""), HasSubstr("this is not JSON"));
  EXPECT_THAT(json_refusal("{\"a\": \"\xff\"}"), HasSubstr("this is not JSON"));
  EXPECT_THAT(json_refusal(std::string("{\"a\": \"\0\"}", 10)), HasSubstr("this is not JSON"));
}

TEST(ParseJson, TheSameKeyMayStandInSeveralObjects) {
  EXPECT_EQ(parse_json("x", R"({"a": {"k": 1}, "b": {"k": 2}, "c": [{"k": 3}, {"k": 4}]})").size(), 4U);
}

TEST(ParseJson, HostileTextIsRefusedInTime) {
  std::string objects, keys = "{\"a\":1";
  while (objects.size() < kMaxConfigBytes - 10) objects += "{\"a\":";
  for (int i = 0; i < 11'000; ++i) keys += text(",\"k", i, "\":1");
  const std::vector<std::pair<const char*, std::string>> hostile = {
      {"brackets", std::string(kMaxConfigBytes, '[')},
      {"objects", objects},
      {"a text without end", "{\"" + std::string(kMaxConfigBytes - 10, 'x')},
      {"many keys", keys + "}"},
      {"too long", std::string(kMaxConfigBytes + 1, ' ')}};
  for (const auto& [name, json] : hostile) {
    std::string message;
    EXPECT_LT(seconds_of([&] { message = json_refusal(json); }), kDeadlineSeconds) << name;
    EXPECT_THAT(message, Not("no error")) << name;
    EXPECT_LT(message.size(), 1000U) << name;
  }
  EXPECT_EQ(json_refusal("{\"a\":" + std::string(33, '[') + "1" + std::string(33, ']') + "}"),
            "x.json is nested deeper than 32");
}

}  // namespace
}  // namespace trireme::config
