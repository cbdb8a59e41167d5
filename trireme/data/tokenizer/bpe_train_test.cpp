#include "trireme/data/tokenizer/bpe_train.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/testing/test_helpers.hpp"
#include "trireme/testing/tokenizer_helpers.hpp"

namespace trireme::data {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> learned(const std::vector<std::pair<std::string, int>>& words, std::int64_t more,
                                 std::uint64_t min_frequency = 0) {
  WordCounts counts;
  for (const auto& [word, times] : words) counts.add(word, static_cast<std::uint64_t>(times));
  const TrainedBpe trained = train_bpe(counts, {.vocab_size = 257 + more, .min_frequency = min_frequency});
  return {trained.tokens.begin() + 257, trained.tokens.end()};
}

TEST(TrainBpe, TheMostFrequentPairFirst) {
  // The example of Sennrich et al., word by word.
  EXPECT_EQ(learned({{"low", 5}, {"lower", 2}, {"newest", 6}, {"widest", 3}}, 4),
            (std::vector<std::string>{"es", "est", "lo", "low"}));
  EXPECT_EQ(learned({{"ba", 1}, {"ab", 1}}, 1), std::vector<std::string>{"ab"});  // ties: the smaller pair
  EXPECT_EQ(learned({{"aaaa", 1}}, 9),
            (std::vector<std::string>{"aa", "aaaa"}));  // then there is nothing left to merge
  EXPECT_EQ(learned({{"ab", 3}, {"cd", 2}}, 9, 3), std::vector<std::string>{"ab"});
}

TEST(TrainBpe, WhatHasNoRoomIsNamed) {
  EXPECT_THAT(
      message_of<ConfigError>([] { train_bpe(WordCounts(), {.vocab_size = 256}); }),
      HasSubstr("a vocabulary of 256 tokens has no room for 256 bytes and 1 special tokens\n  fix: at least 257"));
}

TEST(TrainBpe, SpecialTokensAreNoWords) {
  const auto refused = [](std::vector<std::string> special) {
    return message_of<ConfigError>(
        [&] { train_bpe(WordCounts(), {.vocab_size = 300, .special_tokens = std::move(special)}); });
  };
  EXPECT_THAT(refused({"the"}), HasSubstr("the special token \"the\" is an ordinary word"));
  EXPECT_THAT(refused({""}), HasSubstr("is an ordinary word"));
  EXPECT_THAT(refused({"<s>", "<s>"}), HasSubstr("is given twice"));
  EXPECT_EQ(refused({"<s>", "<|im_end|>"}), "no error");
}

TEST(TrainBpe, DoesNotDependOnTheOrderOfTexts) {
  WordCounts forward, backward, parts;
  count_words(training_text(), KnownPattern::gpt2, forward);
  for (std::size_t i = forward.size(); i-- > 0;) backward.add(forward.word(i), forward.count(i));
  parts.add(forward);
  EXPECT_EQ(parts.size(), forward.size());
  const BpeTrainOptions options{.vocab_size = 600, .pattern = KnownPattern::gpt2};
  const std::string json = tokenizer_json(train_bpe(forward, options));
  EXPECT_EQ(json, tokenizer_json(train_bpe(backward, options)));
  EXPECT_EQ(json, tokenizer_json(train_bpe(parts, options)));
}

TEST(TrainBpe, TheFileReadsBackWithItsMerges) {
  const Tokenizer tokenizer = tokenizer_of(trained_json());
  EXPECT_EQ(tokenizer.vocab_size(), 500);
  EXPECT_EQ(tokenizer.end_of_document(), 0u);
  EXPECT_EQ(tokenizer.encode(" the").size(), 1u);  // the most frequent word of its text
}

}  // namespace
}  // namespace trireme::data
