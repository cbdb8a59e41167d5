// Invalid or unsupported contents of a tokenizer.json: each has a message that names it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/testing/test_helpers.hpp"
#include "trireme/testing/tokenizer_helpers.hpp"

namespace trireme::data {
namespace {

using ::testing::AllOf;
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
      {"normalizer", R"({"type":"ByteLevel"})", "x.json.normalizer: the normalizer \"ByteLevel\" is not supported"},
      {"normalizer", R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Odd"}]})",
       "normalizers[1]: the normalizer \"Odd\""},
      {"normalizer", R"({"type":"Lowercase","also":1})", "the key \"also\" is not supported"},
      {"normalizer", R"({"type":"NFC","also":1})", "the key \"also\" is not supported"},
      {"pre_tokenizer", R"({"type":"UnicodeScripts"})", "the pre-tokenizer \"UnicodeScripts\" is not supported"},
      {"pre_tokenizer", R"({"type":"Punctuation","behavior":"Odd"})", "\"Odd\" is not supported"},
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
      {"decoder", R"({"type":"CTC"})", "the decoder \"CTC\" is not supported"},
      {"decoder", R"({"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Metaspace"}]})",
       "Metaspace behind ByteFallback"},
      {"decoder", R"({"type":"Strip","content":" ","start":1,"stop":0})", "Strip without Fuse"},
      {"post_processor", R"({"type":"Odd"})", "the post-processor \"Odd\" is not supported"},
      {"truncation", R"({"max_length":512})", "x.json.truncation is set"},
      {"padding", R"({"length":1})", "x.json.padding is set"},
      {"model", R"({"type":"WordLevel","vocab":{}})", "the type \"WordLevel\" is not supported"},
      {"model", R"({"type":"Unigram","vocab":[]})", "the pre-tokenizer ByteLevel before the type Unigram"},
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
      {"post_processor", R"({"type":"BertProcessing","sep":["a",0],"cls":["z",9]})",
       "x.json.post_processor.cls[1] is 9, outside the vocabulary (3)"},
      {"post_processor", R"({"type":"RobertaProcessing","sep":["a"],"cls":["a",0]})", "is not a token and its number"},
      {"normalizer", R"({"type":"Precompiled","precompiled_charsmap":"?"})",
       "x.json.normalizer.precompiled_charsmap: \"?\" is not base64"},
      {"normalizer", R"({"type":"Precompiled","precompiled_charsmap":"AAAAAAAA"})",
       "the trie of 0 bytes should be blocks of 1024 within 2"},
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

std::string unigram_json(const std::string& rest) {
  return R"({"decoder":null,"model":{"type":"Unigram",)" + rest + "}}";
}

TEST(TokenizerJson, UnigramTakesTheCutWithTheHighestSum) {
  const std::string vocab = R"("vocab":[["<unk>",0],["a",-1],["b",-1],["ab",-1.5],["ba",-1.5],["<0xC3>",-9]])";
  const auto ids = [&](const std::string& rest, const std::string& of) {
    return tokenizer_of(unigram_json(vocab + rest)).encode(of);
  };
  EXPECT_EQ(ids(R"(,"unk_id":0)", "aba"), (Ids{1, 4})) << "of two that are equally good, the first that was found";
  EXPECT_EQ(ids(R"(,"unk_id":0)", "abxyb"), (Ids{3, 0, 2}));
  EXPECT_EQ(ids(R"(,"unk_id":0)", "x<unk>y"), (Ids{0})) << "unknown with its neighbours";
  EXPECT_EQ(ids(R"(,"unk_id":0,"byte_fallback":true)", "a\u00E9"), (Ids{1, 0})) << "a byte has no token";
  EXPECT_THAT(message_of<DataError>([&] { ids("", "ax"); }),
              AllOf(HasSubstr("the character \"x\" has no token"), HasSubstr("unk_id")));
}

TEST(TokenizerJson, WordPieceIsAllOrNothing) {
  const auto tokenizer = tokenizer_of(
      R"({"decoder":{"type":"WordPiece"},"pre_tokenizer":{"type":"BertPreTokenizer"},"model":{"type":"WordPiece",)"
      R"("unk_token":"?","max_input_chars_per_word":6,"vocab":{"?":0,"un":1,"##able":2,"##a":3,"able":4,"!":5}}})");
  EXPECT_EQ(tokenizer.encode("unable able! una unx"), (Ids{1, 2, 4, 5, 1, 3, 0}));
  EXPECT_EQ(tokenizer.encode("unaaaaa"), (Ids{0})) << "of more than 6 characters";
  EXPECT_EQ(tokenizer.decode(Ids{1, 2, 5, 4}), "unable! able");
}

TEST(TokenizerJson, WhatIsWrongWithAVocabularyOfScoresIsNamed) {
  const std::vector<std::pair<const char*, const char*>> cases{
      {R"("vocab":[["a"]])", "x.json.model.vocab[0] is not a token and its score"},
      {R"("vocab":[["a","b"]])", "x.json.model.vocab[0] is not a token and its score"},
      {R"("vocab":[["a",0],["a",1]])", "token \"a\" has two numbers, 0 and 1"},
      {R"("vocab":[["",0]])", "is an empty token"},
      {R"("vocab":[["a",0]],"unk_id":1)", "x.json.model.unk_id is 1, outside the vocabulary (1)"},
      {R"("vocab":{"a":0})", "x.json.model.vocab is not a list"},
      {R"("vocab":[["a",0]],"alpha":1)", "the key \"alpha\" is not supported"},
  };
  for (const auto& [rest, message] : cases) EXPECT_THAT(json_refusal(unigram_json(rest)), HasSubstr(message)) << rest;
}

}  // namespace
}  // namespace trireme::data
