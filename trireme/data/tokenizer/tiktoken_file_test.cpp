#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/testing/test_helpers.hpp"
#include "trireme/testing/tokenizer_helpers.hpp"

namespace trireme::data {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string base64_of_byte(int byte) {
  return {kDigits[static_cast<std::size_t>(byte >> 2)], kDigits[static_cast<std::size_t>((byte & 3) << 4)], '=', '='};
}

/// All single bytes with their values as ranks, plus the given lines.
std::string lines_with(const std::string& more) {
  std::string out;
  for (int byte = 0; byte < 256; ++byte) out += text(base64_of_byte(byte), ' ', byte, '\n');
  return out + more;
}

Tokenizer read(const std::string& lines, const std::string& name = "own.llama3.tiktoken") {
  return Tokenizer(parts_of_tiktoken_text(lines, name));
}
std::string tiktoken_refusal(const std::string& lines, const std::string& name = "own.llama3.tiktoken") {
  return message_of<DataError>([&] { read(lines, name); });
}

TEST(TiktokenFile, RanksAreTokensAndTheirOrder) {
  const Tokenizer tokenizer = read(lines_with("YWI= 256\nYmM= 257\r\n\nYWJj 258\n"));  // ab, bc, abc
  EXPECT_EQ(tokenizer.vocab_size(), 260);
  EXPECT_EQ(tokenizer.encode("abc bcd abab"), (std::vector<TokenId>{258, ' ', 257, 'd', ' ', 256, 256}));
  EXPECT_EQ(tokenizer.encode("<|endoftext|>"), std::vector<TokenId>{259});
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{258, 259}), "abc<|endoftext|>");
}

TEST(TiktokenFile, SpecialTokensComeFromTheName) {
  const Tokenizer tokenizer = read(lines_with(""), "folder/cl100k_base.tiktoken");
  EXPECT_EQ(tokenizer.token_id("<|endofprompt|>"), 100276u);
  EXPECT_EQ(tokenizer.end_of_document(), 100257u);
  EXPECT_THAT(tiktoken_refusal(lines_with(""), "own.tiktoken"),
              HasSubstr("its name does not either\n  fix: a name with one of gpt2, "));
  EXPECT_EQ(read(lines_with(""), "o200k_base.tiktoken").end_of_document(), 199999u);
}

TEST(TiktokenFile, WhatIsWrongIsNamed) {
  EXPECT_THAT(tiktoken_refusal(""), HasSubstr("own.llama3.tiktoken has no tokens"));
  EXPECT_THAT(tiktoken_refusal("YQ== 0\nYg==\n"),
              HasSubstr("own.llama3.tiktoken:2: \"Yg==\" is not a token and its rank"));
  EXPECT_THAT(tiktoken_refusal("YQ== zero\n"), HasSubstr("own.llama3.tiktoken:1: \"zero\" is not a rank"));
  EXPECT_THAT(tiktoken_refusal("YQ== 99999999999\n"), HasSubstr("is not a rank"));
  for (const char* bad : {"Y 0", "Y=== 0", "YQ=a 0", "Y!== 0", " 0"})
    EXPECT_THAT(tiktoken_refusal(bad), HasSubstr("is not base64")) << bad;
  EXPECT_THAT(tiktoken_refusal("YQ== 97\n"), HasSubstr("no token for the byte 0"));
  EXPECT_THAT(tiktoken_refusal(lines_with("YWI= 97\n")), HasSubstr("token 97 is \"a\" and \"ab\""));
  EXPECT_THAT(tiktoken_refusal(lines_with("YQ== 300\n")), HasSubstr("token \"a\" has two numbers, 97 and 300"));
  EXPECT_THAT(tiktoken_refusal(lines_with("YWI= 4000000000\n")),
              HasSubstr("has the number 4000000000; in a file of so few tokens at most"));
}

}  // namespace
}  // namespace trireme::data
