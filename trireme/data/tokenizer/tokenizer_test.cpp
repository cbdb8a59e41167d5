#include "trireme/data/tokenizer/tokenizer.hpp"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trireme/testing/temp_folder.hpp"
#include "trireme/testing/test_helpers.hpp"
#include "trireme/testing/tokenizer_helpers.hpp"

namespace trireme::data {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<TokenId>;

TEST(Tokenizer, BytesAreTheirNumbers) {
  const Tokenizer bytes = Tokenizer::load("bytes");
  EXPECT_EQ(bytes.vocab_size(), 257);
  EXPECT_EQ(bytes.encode("a\xFF\n<|endoftext|>"), (Ids{97, 255, 10, 256}));
  EXPECT_EQ(bytes.decode(Ids{97, 256, 98}), "a<|endoftext|>b");
  EXPECT_EQ(bytes.decode(Ids{97, 256, 98}, true), "ab");
  EXPECT_EQ(bytes.end_of_document(), 256u);
  EXPECT_THAT(message_of<DataError>([&] { bytes.decode(Ids{257}); }),
              HasSubstr("token 257 is outside the vocabulary of bytes (257)"));
}

TEST(Tokenizer, NothingIsLost) {
  for (const KnownPattern pattern : {KnownPattern::gpt2, KnownPattern::llama3, KnownPattern::qwen2}) {
    const Tokenizer tokenizer = tokenizer_of(trained_json(pattern));
    for (std::uint64_t i = 0; i < 3000; ++i) {
      const std::string one = random_text(i);
      ASSERT_EQ(tokenizer.decode(tokenizer.encode(one)), one);
    }
  }
}

TEST(Tokenizer, ABatchIsItsTexts) {
  const Tokenizer tokenizer = tokenizer_of(trained_json());
  std::vector<std::string> texts;
  for (std::uint64_t i = 0; i < 500; ++i) texts.push_back(random_text(i));
  for (const int threads : {0, 1, 3}) {
    const auto batch = tokenizer.encode_batch(texts, false, threads);
    ASSERT_EQ(batch.size(), texts.size());
    for (std::size_t i = 0; i < texts.size(); ++i) ASSERT_EQ(batch[i], tokenizer.encode(texts[i]));
  }
  EXPECT_TRUE(tokenizer.encode_batch({}).empty());
}

TEST(Tokenizer, TheFastPathIsTheSlowOne) {
  for (const KnownPattern pattern : {KnownPattern::gpt2, KnownPattern::llama3, KnownPattern::qwen2}) {
    const std::string json = trained_json(pattern);
    const Tokenizer fast = tokenizer_of(json);
    auto parts = parts_of_tokenizer_json_text(json, "x.json");
    ASSERT_EQ(parts->fast, pattern);
    parts->fast = KnownPattern::none;
    const Tokenizer slow(std::move(parts));
    for (std::uint64_t i = 0; i < 300; ++i) {
      const std::string one = random_text(i, false) + "'ll the  words\n\n12345";
      if (is_newer_than_pcre2(one)) continue;
      ASSERT_EQ(fast.encode(one), slow.encode(one)) << one;
    }
  }
}

TEST(Tokenizer, IsFoundInFoldersAndByName) {
  const TempFolder folder;
  const auto write = [&](const char* name, const std::string& contents) {
    std::ofstream(folder.path() / name) << contents;
  };
  const auto refusal = [&](const std::filesystem::path& path) {
    return message_of<DataError>([&] { Tokenizer::load(path); });
  };
  EXPECT_THAT(refusal(folder.path()), HasSubstr("has neither tokenizer.json nor vocab.json and merges.txt"));
  EXPECT_THAT(refusal(folder.path() / "none.json"), HasSubstr("does not exist"));
  write("x.bin", "x");
  EXPECT_THAT(refusal(folder.path() / "x.bin"), HasSubstr("what kind of tokenizer is this?"));
  write("vocab.json", R"({"a":0,"b":1,"ab":2,"<|endoftext|>":3})");
  EXPECT_THAT(refusal(folder.path()), HasSubstr("needs merges.txt beside it"));
  write("merges.txt", "#version: 0.2\na b\n");
  EXPECT_EQ(Tokenizer::load(folder.path()).encode("abba<|endoftext|>"), (Ids{2, 1, 0, 3}));
  write("tokenizer.json", trained_json());
  EXPECT_EQ(Tokenizer::load(folder.path()).vocab_size(), 500);
  write("tokenizer_config.json", R"({"eos_token":{"content":"!"}})");
  const Tokenizer configured = Tokenizer::load(folder.path());
  EXPECT_EQ(configured.end_of_document(), configured.token_id("!"));
  write("tokenizer_config.json", R"({"eos_token":"<none>"})");
  EXPECT_THAT(refusal(folder.path()), HasSubstr("tokenizer_config.json.eos_token is \"<none>\", which is not in"));
}

/// The older notation of merges, "a b".
std::string with_spelt_merges(const std::string& json) {
  auto value = nlohmann::json::parse(json);
  for (auto& merge : value["model"]["merges"]) merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  return value.dump();
}

TEST(Tokenizer, TheFingerprintIsOfWhatDecidesTokens) {
  const std::string json = trained_json();
  const std::string print = tokenizer_of(json).fingerprint();
  EXPECT_EQ(print.size(), 16u);
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string other = json;
    const std::size_t at = other.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    other.replace(at, from.size(), to);
    return tokenizer_of(other).fingerprint();
  };
  EXPECT_EQ(changed("\n", "\n\n  "), print);  // white space
  EXPECT_EQ(changed("\"version\": \"1.0\"", "\"version\": \"1.1\""), print);
  EXPECT_EQ(tokenizer_of(with_spelt_merges(json)).fingerprint(), print);
  EXPECT_NE(changed("\"ignore_merges\": false", "\"ignore_merges\": true"), print);
  EXPECT_NE(changed("{1,3}", "{1,2}"), print);
  EXPECT_NE(
      changed("\"post_processor\": null",
              R"("post_processor": {"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"z"}},{"Sequence":{}}],
                        "special_tokens":{"z":{"ids":[0]}}})"),
      print);
  EXPECT_NE(changed("\"lstrip\": false", "\"lstrip\": true"), print);
  EXPECT_NE(changed("\"normalizer\": null", "\"normalizer\": {\"type\":\"NFC\"}"), print);
  EXPECT_NE(tokenizer_of(trained_json(KnownPattern::llama3, 499)).fingerprint(), print);
}

}  // namespace
}  // namespace trireme::data
