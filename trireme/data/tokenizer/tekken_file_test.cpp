// That tokens are those of the reference is checked by peers.sentencepiece.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trireme/testing/test_helpers.hpp"
#include "trireme/testing/tokenizer_helpers.hpp"

namespace trireme::data {
namespace {

using ::testing::HasSubstr;
using TekkenIds = std::vector<TokenId>;
using Tekken = nlohmann::json;

/// The 256 bytes, "ab" and "abc"; three special tokens of ten.
Tekken small_tekken() {
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  Tekken out = {{"config",
                 {{"pattern", R"(\p{L}+|[^\p{L}]+)"},
                  {"num_vocab_tokens", 258},
                  {"default_vocab_size", 268},
                  {"default_num_special_tokens", 10},
                  {"version", "v11"}}},
                {"special_tokens", Tekken::array()},
                {"vocab", Tekken::array()}};
  for (std::size_t byte = 0; byte < 256; ++byte)
    out["vocab"].push_back({{"rank", byte},
                            {"token_bytes", std::string{kLetters[byte >> 2], kLetters[(byte & 3) << 4], '=', '='}},
                            {"token_str", nullptr}});
  out["vocab"].push_back({{"rank", 256}, {"token_bytes", "YWI="}, {"token_str", "ab"}});
  out["vocab"].push_back({{"rank", 257}, {"token_bytes", "YWJj"}, {"token_str", "abc"}});
  for (const char* name : {"<unk>", "<s>", "</s>"})
    out["special_tokens"].push_back(
        {{"rank", out["special_tokens"].size()}, {"token_str", name}, {"is_control", true}});
  return out;
}

Tokenizer read_tekken(const Tekken& file) { return Tokenizer(parts_of_tekken_text(file.dump(), "tekken.json")); }

std::string tekken_refusal(const char* pointer, const Tekken& value) {
  Tekken file = small_tekken();
  file[Tekken::json_pointer(pointer)] = value;
  return message_of<DataError>([&] { read_tekken(file); });
}

TEST(TekkenFile, SpecialTokensComeFirst) {
  const Tokenizer tokenizer = read_tekken(small_tekken());
  EXPECT_EQ(tokenizer.vocab_size(), 268);
  EXPECT_EQ(tokenizer.encode("abc ab"), (TekkenIds{267, 10 + ' ', 266}));
  EXPECT_EQ(tokenizer.encode("</s>").size(), 4u) << "as in the reference, text";
  EXPECT_EQ(tokenizer.encode_part("</s>", SpecialText::token), TekkenIds{2});
  EXPECT_EQ(tokenizer.end_of_document(), TokenId{2});
  EXPECT_EQ(tokenizer.decode(TekkenIds{1, 267, 9}), "<s>abc<SPECIAL_9>");
  EXPECT_EQ(tokenizer.decode(TekkenIds{1, 267, 9}, true), "abc");
}

TEST(TekkenFile, TheVocabularyMayBeCut) {
  Tekken file = small_tekken();
  file["config"]["default_vocab_size"] = 267;
  EXPECT_EQ(read_tekken(file).encode("abc"), (TekkenIds{266, 10 + 'c'}));
}

TEST(TekkenFile, OldFilesHaveTheUsualSpecialTokens) {
  Tekken file = small_tekken();
  file.erase("special_tokens");
  file["config"]["default_num_special_tokens"] = 22;
  file["config"]["default_vocab_size"] = 280;
  EXPECT_THAT(message_of<DataError>([&] { read_tekken(file); }),
              HasSubstr("special_tokens is missing; a file of version v11 must have it"));
  file["config"]["version"] = "v3";
  EXPECT_EQ(read_tekken(file).token_id("[/INST]"), TokenId{4});
  EXPECT_EQ(read_tekken(file).token_id("<SPECIAL_21>"), TokenId{21});
}

TEST(TekkenFile, WhatIsWrongIsNamed) {
  const std::vector<std::tuple<const char*, Tekken, const char*>> cases{
      {"/vocab/256/rank", 7, "tekken.json.vocab[256].rank is not 256, its place in the list"},
      {"/vocab/256/token_bytes", "?", "tekken.json.vocab[256].token_bytes: \"?\" is not base64"},
      {"/vocab/65/token_bytes", "YWI=", "tekken.json.vocab[65].token_bytes is not the byte 65"},
      {"/vocab/257/token_bytes", "YWI=", "tekken.json: token \"ab\" has two numbers, 266 and 267"},
      {"/vocab/256/odd", 1, "the key \"odd\" is not supported"},
      {"/special_tokens/1/rank", 7, "tekken.json.special_tokens[1].rank is not 1"},
      {"/special_tokens/1/token_str", "</s>", "token \"</s>\" has two numbers, 1 and 2"},
      {"/config/default_num_special_tokens", 2, "is 268; with 2 special tokens and 258 others it is 3 to 260"},
      {"/config/default_num_special_tokens", 4'000'000'000u, "at most 65536 are allowed"},
      {"/config/default_vocab_size", 300, "is 300; with 10 special tokens and 258 others it is 11 to 268"},
      {"/config/default_vocab_size", -1, "is not a number from 0 to 2^32 - 2"},
      {"/config/pattern", "(", "tekken.json.config.pattern: "},
      {"/config/odd", 1, "the key \"odd\" is not supported"},
      {"/tools", 1, "the key \"tools\" is not supported"},
  };
  for (const auto& [pointer, value, message] : cases)
    EXPECT_THAT(tekken_refusal(pointer, value), HasSubstr(message)) << pointer;
  Tekken config = small_tekken()["config"];
  config["default_num_special_tokens"] = 2;
  config["default_vocab_size"] = 260;
  EXPECT_THAT(tekken_refusal("/config", config),
              HasSubstr("tekken.json.config.default_num_special_tokens is 2, for 3 of them"));
}

}  // namespace
}  // namespace trireme::data
