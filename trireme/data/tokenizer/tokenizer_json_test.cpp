// Invalid or unsupported contents of a tokenizer.json: each has a message that names it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/testing/test_helpers.hpp"
#include "trireme/testing/tokenizer_helpers.hpp"

namespace trireme::data {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<TokenId>;

/// A small file with one part replaced.
std::string with(const std::string& key, const std::string& value) {
  std::map<std::string, std::string> parts{
      {"added_tokens", "[]"},
      {"normalizer", "null"},
      {"pre_tokenizer", R"({"type":"ByteLevel","add_prefix_space":false})"},
      {"post_processor", "null"},
      {"decoder", R"({"type":"ByteLevel"})"},
      {"model", R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]})"}};
  if (!key.empty()) parts[key] = value;
  std::string out = "{";
  for (const auto& [name, json] : parts) out += text(out.size() > 1 ? "," : "", '"', name, "\":", json);
  return out + "}";
}

std::string json_refusal(const std::string& json) {
  return message_of<DataError>([&] { tokenizer_of(json); });
}

TEST(TokenizerJson, TheSmallestOne) {
  EXPECT_EQ(tokenizer_of(with("", "")).encode("aab"), (Ids{0, 2}));
  EXPECT_EQ(tokenizer_of(with("model", R"({"vocab":{"a":0,"b":1,"ab":2},"merges":[["a","b"]]})")).encode("aab"),
            (Ids{0, 2}));
}

TEST(TokenizerJson, WhatIsNotDoneIsNamed) {
  const std::vector<std::tuple<const char*, const char*, const char*>> cases{
      {"normalizer", R"({"type":"Lowercase"})", "x.json.normalizer: the normalizer \"Lowercase\" is not supported"},
      {"normalizer", R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"StripAccents"}]})",
       "normalizers[1]: the normalizer \"StripAccents\""},
      {"normalizer", R"({"type":"NFC","also":1})", "the key \"also\" is not supported"},
      {"pre_tokenizer", R"({"type":"Whitespace"})", "the pre-tokenizer \"Whitespace\" is not supported"},
      {"pre_tokenizer", R"({"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"Digits"}]})",
       "a pre-tokenizer behind ByteLevel"},
      {"pre_tokenizer", R"({"type":"Split","pattern":{"Regex":"a"},"behavior":"Odd"})", "\"Odd\" is not supported"},
      {"pre_tokenizer", R"({"type":"Split","pattern":{"Regex":"\\w"},"behavior":"Isolated"})",
       "x.json.pre_tokenizer.pattern: the pattern"},
      {"pre_tokenizer", R"({"type":"Split","pattern":{},"behavior":"Isolated"})", "is neither a Regex nor a String"},
      {"pre_tokenizer", R"({"type":"Metaspace","replacement":"ab"})", "is not one character"},
      {"pre_tokenizer", R"({"type":"Metaspace","add_prefix_space":false})", "is false, but prepend_scheme is not"},
      {"decoder",
       R"({"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Replace","pattern":{"String":"a"},"content":"b"}]})",
       "Replace behind Fuse"},
      {"model", R"({"vocab":{"a":0},"merges":[],"byte_fallback":true})",
       "byte_fallback behind the pre-tokenizer ByteLevel"},
      {"decoder", R"({"type":"WordPiece"})", "the decoder \"WordPiece\" is not supported"},
      {"decoder", R"({"type":"Strip","content":" ","start":1,"stop":0})", "Strip without Fuse"},
      {"post_processor", R"({"type":"BertProcessing"})", "the post-processor \"BertProcessing\" is not supported"},
      {"truncation", R"({"max_length":512})", "x.json.truncation is set"},
      {"padding", R"({"length":1})", "x.json.padding is set"},
      {"model", R"({"type":"Unigram","vocab":[]})", "the type \"Unigram\" is not supported"},
      {"model", R"({"type":"BPE","vocab":{"a":0},"merges":[],"dropout":0.1})", "dropout of merges is not supported"},
      {"model", R"({"type":"BPE","vocab":{"a":0},"merges":[],"end_of_word_suffix":"</w>"})",
       "a mark at the borders of words is not supported"},
  };
  for (const auto& [key, value, message] : cases)
    EXPECT_THAT(json_refusal(with(key, value)), HasSubstr(message)) << key << " " << value;
}

TEST(TokenizerJson, WhatIsWrongIsNamed) {
  const std::vector<std::tuple<const char*, const char*, const char*>> cases{
      {"model", R"({"vocab":{"a":0,"b":1},"merges":["a b"]})",
       "x.json.model.merges[0] speaks of \"ab\", which is not in the vocabulary"},
      {"model", R"({"vocab":{"a":0,"b":1},"merges":["ab"]})", "is not two tokens with a space between"},
      {"model", R"({"vocab":{"a":0,"b":1},"merges":[["a"]]})", "is not a pair"},
      {"model", R"({"vocab":{"a":0,"b":0},"merges":[]})", "token 0 is \"a\" and \"b\""},
      {"model", R"({"vocab":{"a":-1},"merges":[]})", "is not a number from 0 to 2^32 - 2"},
      {"model", R"({"vocab":{"a":99999999},"merges":[]})",
       "has the number 99999999; in a file of so few tokens at most"},
      {"model", R"({"vocab":[],"merges":[]})", "is not an object of tokens and their numbers"},
      {"model", R"({"vocab":{"a":0},"merges":{}})", "x.json.model.merges is not a list"},
      {"model", R"({"vocab":{"a":0},"merges":[],"unk_token":"b"})", "x.json.model.unk_token is not in the vocabulary"},
      {"added_tokens", R"([{"id":1,"content":"zz"}])", "says that \"zz\" is token 1; the reference makes it 3"},
      {"added_tokens", R"([{"id":7,"content":"a"}])", "says that \"a\" is token 7; the reference makes it 0"},
      {"added_tokens", R"([{"id":3,"content":"y"},{"id":5,"content":"z"}])",
       "added_tokens[1] says that \"z\" is token 5; the reference makes it 4"},
      {"added_tokens", R"([{"id":3,"content":""}])", "has 0 bytes; 1 to 1024 are allowed"},
      {"added_tokens", R"([{"id":3,"content":"z","special":1}])", "is neither true nor false"},
      {"post_processor",
       R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"z"}},{"Sequence":{}}],"special_tokens":{"z":{"ids":[9]}}})",
       "is 9, outside the vocabulary (3)"},
      {"post_processor", R"({"type":"TemplateProcessing","single":[],"special_tokens":{}})",
       "has no place for the text"},
  };
  for (const auto& [key, value, message] : cases)
    EXPECT_THAT(json_refusal(with(key, value)), HasSubstr(message)) << key << " " << value;
  EXPECT_THAT(json_refusal("[1]"), HasSubstr("x.json is JSON, but not an object"));
  EXPECT_THAT(json_refusal("{\"a\""), HasSubstr("x.json is not JSON"));
  EXPECT_THAT(json_refusal(std::string(200, '[')), HasSubstr("nested more than 64 deep"));
  EXPECT_THAT(json_refusal(std::string("{}\0", 3)), HasSubstr("a NUL at byte 2"));
}

TEST(TokenizerJson, WhatHasNoTokenFallsBackToBytesOrIsUnknown) {
  const auto ids = [](const std::string& flags, const std::string& of) {
    return tokenizer_of(R"({"decoder":null,"model":{"vocab":{"?":0,"a":1,"<0xC3>":2,"<0xA9>":3},"merges":[])" + flags +
                        "}}")
        .encode(of);
  };
  EXPECT_EQ(ids("", "aéa"), (Ids{1, 1}));  // as in the reference: symbols without a token are dropped
  EXPECT_EQ(ids(R"(,"byte_fallback":true)", "aé"), (Ids{1, 2, 3}));
  EXPECT_EQ(ids(R"(,"unk_token":"?")", "xyaz"), (Ids{0, 0, 1, 0}));
  EXPECT_EQ(ids(R"(,"unk_token":"?","fuse_unk":true)", "xyaz"), (Ids{0, 1, 0}));
}

}  // namespace
}  // namespace trireme::data
