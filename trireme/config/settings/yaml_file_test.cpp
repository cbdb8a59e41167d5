#include "trireme/config/settings/yaml_file.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/config/settings/toml_file.hpp"
#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string yaml_refusal(const std::string& yaml) {
  return message_of<ConfigError>([&] { parse_yaml("x.yaml", yaml); });
}

TEST(ParseYaml, GivesDottedPathsWithLines) {
  const Settings settings = parse_yaml("x.yaml", R"(# nanotron's files use no more than this
general:
  run: tiny %date
  step: null
data_stages:
- data:
    seed: 42
  name: "1"
- name: 'two # words'
lists: [1, two, [3.5]]
block:
- a
- b
empty: []
map: {}
flow: {a: 1, b: [x]}
)");
  std::vector<std::string> lines;
  for (const Setting& s : settings) lines.push_back(text(s.place.line, ": ", s.path, " = ", str(s.value)));
  EXPECT_THAT(lines,
              ElementsAre("3: general.run = \"tiny %date\"", "4: general.step = ", "7: data_stages.0.data.seed = 42",
                          "8: data_stages.0.name = \"1\"", "9: data_stages.1.name = \"two # words\"",
                          "10: lists = [1, \"two\", [3.5]]", "12: block = [\"a\", \"b\"]", "14: empty = []",
                          "16: flow.a = 1", "16: flow.b = [\"x\"]"));
}

TEST(ParseYaml, AQuoteThatIsNotClosedIsRefused) {
  for (const std::string yaml : {"a: 1\nb: \"c", "a: 1\nb: \"c\nd: 2\n", "a: 1\nb: 'c", "a: 1\nb: 'it''s\n",
                                 "a: 1\nb: \"c\\\"\n", "a: 1\nb: [x, \"c]", "a: 1\n\"b: 2\n"})
    EXPECT_THAT(yaml_refusal(yaml), AllOf(StartsWith("this is not YAML: "), HasSubstr("x.yaml:"))) << yaml;
  EXPECT_EQ(yaml_refusal("a: 1\nb: 'c\n"), "this is not YAML: the quote ' is not closed\n  --> x.yaml:2");
  const Settings good =
      parse_yaml("x.yaml", "\xef\xbb\xbf\"a\": 'it''s'\nü: \"ö \\\" \\\\\"\nc: [\"x\", 'y']\nd: it's\n");
  ASSERT_EQ(good.size(), 4U);
  EXPECT_EQ(str(good[0].value), "\"it's\"");
  EXPECT_EQ(str(good[2].value), "[\"x\", \"y\"]");
}

TEST(ParseYaml, ControlCharactersAreRefused) {
  EXPECT_EQ(yaml_refusal(std::string("a: 1\nb: \0\n", 10)),
            "this is not YAML: the control character 0\n  --> x.yaml:2");
  EXPECT_EQ(yaml_refusal("a: 1\n\x04\nb: 2\n"), "this is not YAML: the control character 4\n  --> x.yaml:2");
  EXPECT_EQ(parse_yaml("x.yaml", "a: 1\r\nb: 2 \t# tab\n").size(), 2U);
}

TEST(ParseYaml, TypesPlainWordsAsYaml12Does) {
  const std::vector<std::pair<std::string, Value>> cases = {
      {"5", {std::int64_t{5}}},
      {"-5", {std::int64_t{-5}}},
      {"+5", {std::int64_t{5}}},
      {"1e-4", {1e-4}},
      {"1.0e-05", {1e-5}},
      {".5", {0.5}},
      {"-.5", {-0.5}},
      {"true", {true}},
      {"False", {false}},
      {"no", {"no"}},
      {"on", {"on"}},
      {"inf", {"inf"}},
      {"nan", {"nan"}},
      {"1f1b", {"1f1b"}},
      {"2024-01-01", {"2024-01-01"}},
      {"99999999999999999999", {1e20}},
      {"~", {Nothing{}}},
      {"null", {Nothing{}}},
      {"", {Nothing{}}},
      {"'5'", {"5"}},
      {"\"true\"", {"true"}},
      {"'null'", {"null"}},
  };
  for (const auto& [word, value] : cases) {
    const Settings settings = parse_yaml("x.yaml", "a: " + word + "\n");
    ASSERT_EQ(settings.size(), 1U) << word;
    EXPECT_EQ(settings[0].value, value) << word << " became " << str(settings[0].value);
  }
}

TEST(ParseYaml, RefusesWhatNoConfigNeedsWithItsLine) {
  EXPECT_EQ(yaml_refusal("a: 1\nb: &x 2"),
            "anchors (&name) are not supported\n  fix: write the value out\n  --> x.yaml:2");
  EXPECT_EQ(yaml_refusal("a: &x {b: 1}"),
            "anchors (&name) are not supported\n  fix: write the value out\n  --> x.yaml:1");
  EXPECT_THAT(yaml_refusal("a: &x 1\nb: *x"), HasSubstr("anchors"));
  EXPECT_THAT(yaml_refusal("a: !!python/object:os.system x"),
              HasSubstr("the tag tag:yaml.org,2002:python/object:os.system"));
  EXPECT_EQ(yaml_refusal("a: 1\nb: 2\na: 3"), "the key 'a' is given twice\n  --> x.yaml:3");
  EXPECT_EQ(yaml_refusal("a: 1\n---\nb: 2"), "x.yaml holds more than one YAML document (---)");
  EXPECT_EQ(yaml_refusal("- 1\n- 2"), "x.yaml is not a YAML map");
  EXPECT_EQ(yaml_refusal(""), "x.yaml is not a YAML map");
  EXPECT_EQ(yaml_refusal("a: \xff"), "x.yaml is not UTF-8");
  EXPECT_THAT(yaml_refusal("a: [1, 2"), StartsWith("this is not YAML: "));
  EXPECT_THAT(yaml_refusal("a: 1\n b: 2"), HasSubstr("\n  --> x.yaml:2"));
  EXPECT_THAT(yaml_refusal("a:\n\t- b: 1"), StartsWith("this is not YAML: "));
}

/// A null, a list or a map as a key.
TEST(ParseYaml, AKeyIsAWord) {
  for (const char* yaml :
       {": 5", "null: 5", "~: 5", "{~: 1}", "{: 1}", "? \n: 4", "? [1, 2]\n: 3", "? {a: 1}\n: 3", "a:\n  ~: 1"})
    EXPECT_THAT(yaml_refusal(yaml), StartsWith("a key must be one word")) << yaml;
}

TEST(ParseYaml, HostileTextIsRefusedInTime) {
  const auto repeat = [](const std::string& word) { return repeated(word, 20'000); };
  std::string keys, deep;
  for (int i = 0; i < 11'000; ++i) keys += text("k", i, ": 1\n");
  for (int i = 0; i < 100; ++i) deep += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
  const std::vector<std::pair<const char*, std::string>> hostile = {
      {"lists in lists", repeat("[")},
      {"maps in maps", repeat("{")},
      {"maps of lists", repeat("{a: [")},
      {"lists in block lists", repeat("- ")},
      {"keys of keys", repeat("? ")},
      {"colons", repeat(":")},
      {"many keys", keys},
      {"deep indents", deep},
      {"quotes", repeat("'")},
      {"anchors", repeat("&")},
      {"aliases", repeat("*")},
      {"tags", repeat("!")},
      {"a NUL", std::string("a: 1\0\nb: 2\n", 12)},
      {"too long", std::string(kMaxConfigBytes + 1, '#')}};
  for (const auto& [name, yaml] : hostile) {
    std::string message;
    EXPECT_LT(seconds_of([&] { message = yaml_refusal(yaml); }), kDeadlineSeconds) << name;
    EXPECT_THAT(message, Not("no error")) << name;
    EXPECT_LT(message.size(), 1000U) << name;
  }
}

}  // namespace
}  // namespace trireme::config
