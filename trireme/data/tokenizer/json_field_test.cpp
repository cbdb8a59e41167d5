#include "trireme/data/tokenizer/json_field.hpp"

#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trireme/base/philox.hpp"

namespace trireme::data {
namespace {

using testing::HasSubstr;

/// Reference: the library's tree, which shares only the library's lexer with our two readers.
std::optional<std::string> by_tree(std::string_view line) {
  if (line.find('\0') != std::string_view::npos) return std::nullopt;
  const nlohmann::json value = nlohmann::json::parse(line, nullptr, false);
  if (!value.is_object() || !value.contains("text") || !value["text"].is_string()) return std::nullopt;
  return value["text"].get<std::string>();
}

std::optional<std::string> by_library(std::string_view line) {
  std::string out;
  try {
    detail::parse_json_field(line, "text", out);
  } catch (const BadDocument&) {
    return std::nullopt;
  }
  return out;
}

/// Whether the scanner was sure; fails the test if one of the two readers disagrees with the tree.
bool agree(const std::string& line) {
  const auto expected = by_tree(line);
  EXPECT_EQ(by_library(line), expected) << line;
  std::string out;
  const bool sure = detail::scan_json_field(line, "text", out);
  if (sure) {
    EXPECT_EQ(std::optional(out), expected) << line;
  }
  return sure;
}

TEST(JsonField, TheScannerIsSureOfWhatProgramsWrite) {
  for (const std::string line : {
           R"({"text": "one"})",
           R"({"text":""})",
           R"( { "a" : [1, -2.5, 0, true, false, null, {"text": "no"}, []] , "text" : "yes" } )",
           R"({"text": "first", "text": "last"})",
           R"({"text": "\" \\ \/ \b \f \n \r \t \u0041 \u00e9 \u20AC \uD83D\uDE00 \u0000"})",
           R"({"\u0074ext": "by an escaped key", "t": {"text": 5}})",
           "{\"text\": \"h\u00e9llo \u4e16\u754c \U0001F600 and plain text behind it\"}",
           "{\"text\": \"12345678\\n12345678\\\"\"}\r",
           "{\"text\": \"\x7f\"}",
       })
    EXPECT_TRUE(agree(line)) << line;
}

TEST(JsonField, TheScannerLeavesTheRestToTheLibrary) {
  for (const std::string line : {
           R"({"text": 5, "text": "last"})",
           R"({"text": "last", "text": 5})",
           R"({"text": {"text": "no"}})",
           R"({"text": ["no"]})",
           R"({"txt": "no"})",
           R"({})",
           R"(["text", "no"])",
           R"("text")",
           R"({"text": "one")",
           R"({"text": "one"}})",
           R"({"text": "one",})",
           R"({"text": "one" "a": 1})",
           R"({"text": "\uD83D"})",
           R"({"text": "\uD83Dx"})",
           R"({"text": "\uDE00"})",
           R"({"text": "\uD83D\u0041"})",
           R"({"text": "\u12"})",
           R"({"text": "\x41"})",
           R"({"text": "one", "a": 01})",
           R"({"text": "one", "a": 1.})",
           R"({"text": "one", "a": -})",
           R"({"text": "one", "a": 1e999})",
           R"({"text": "one", "a": 1e9})",
           R"({"text": "one", "a": nul})",
           R"({'text': "one"})",
           "{\"text\": \"a\tb\"}",
           "{\"text\": \"\xff\"}",
           "{\"text\": \"\xc0\xaf\"}",
           "{\"text\": \"\xed\xa0\x80\"}",
           "{\"text\": \"\xf4\x90\x80\x80\"}",
           "{\"text\": \"\xe4\xb8\"}",
           "{\"text\": \"one\", \"\xff\": 1}",
           "\xEF\xBB\xBF{\"text\": \"one\"}",
           "",
           "   ",
       })
    EXPECT_FALSE(agree(line)) << line;
  EXPECT_FALSE(agree(std::string("{\"text\": \"one\"}\0", 16)));
  EXPECT_FALSE(agree("{\"text\": \"one\", \"a\": " + std::string(400, '9') + "}"));
  EXPECT_FALSE(agree("{\"text\": \"one\", \"a\": " + std::string(100, '[') + std::string(100, ']') + "}"));
}

TEST(JsonField, EveryByteAtEveryPlaceIsTheSameToBoth) {
  const std::string line = R"({"a": [-1.5, true], "text": "one \u00e9 two \ud83d\ude00", "b": {"c": "\n"}})";
  for (std::size_t at = 0; at < line.size(); ++at)
    for (int byte = 0; byte < 256; ++byte) {
      std::string other = line;
      other[at] = static_cast<char>(byte);
      agree(other);
    }
  for (std::size_t at = 0; at < line.size(); ++at) agree(line.substr(0, at));
}

/// Random lines built from relevant fragments, most of them almost JSON.
TEST(JsonField, RandomLinesAreTheSameToBoth) {
  const std::vector<std::string> pieces = {"{",
                                           "}",
                                           "[",
                                           "]",
                                           ":",
                                           ",",
                                           "\"",
                                           "\"text\"",
                                           "\"text\":",
                                           "\"a\":",
                                           "\"one\"",
                                           "\\",
                                           "\\",
                                           "\\n",
                                           "\\u00e9",
                                           "\\ud83d",
                                           "\\ude00",
                                           "\\u",
                                           "é",
                                           "\U0001F600",
                                           "\xff",
                                           "\xe4\xb8",
                                           " ",
                                           "1",
                                           "-2",
                                           "3.25e1",
                                           "true",
                                           "null",
                                           "\t",
                                           "\x01",
                                           "plain text of more than eight bytes",
                                           "{\"text\":\"x\"}",
                                           "0"};
  const RandomStream random(7, "json lines");
  std::uint64_t draw = 0;
  int sure = 0;
  for (int i = 0; i < 60'000; ++i) {
    std::string line = random.below(draw++, 4) > 0 ? "{\"text\":\"" : "{";
    for (std::uint64_t n = random.below(draw++, 8); n > 0; --n) line += pieces[random.below(draw++, pieces.size())];
    line += random.below(draw++, 4) > 0 ? "\"}" : "}";
    sure += agree(line);
  }
  EXPECT_GT(sure, 1'000) << "else the scanner was hardly tested";
}

TEST(JsonField, WhatIsWrongIsSaid) {
  const auto fault = [](const std::string& line) -> std::string {
    std::string out;
    try {
      read_json_field(line, "text", out);
    } catch (const BadDocument& bad) {
      return bad.what();
    }
    return "none";
  };
  EXPECT_EQ(fault(R"({"txt": "x", "id": 3})"), R"(has no key "text"; it has "txt", "id")");
  EXPECT_EQ(fault("{}"), R"(has no key "text"; it is empty)");
  EXPECT_EQ(fault(R"({"text": 5})"), R"(the value of "text" is not a string)");
  EXPECT_EQ(fault("[1]"), "is JSON, but not an object");
  EXPECT_THAT(fault("{\"text\": \"\x1b[31m"), HasSubstr("is not JSON: syntax error"));
  EXPECT_THAT(fault("{\"text\": \"\xff\"}"), HasSubstr("ill-formed UTF-8"));
  EXPECT_THAT(fault(std::string(1'000'000, '[')), HasSubstr("is not JSON"));
}

}  // namespace
}  // namespace trireme::data
