#include "trireme/data/tokenizer/word_cache.hpp"

#include <gtest/gtest.h>

#include "trireme/testing/tokenizer_helpers.hpp"

namespace trireme::data {
namespace {

/// Tokens that identify a word: its hash, its length, and up to nine more.
void made_up(std::string_view word, std::vector<TokenId>& ids) {
  const std::size_t hash = std::hash<std::string_view>{}(word);
  ids.push_back(static_cast<TokenId>(hash & 0xFFFFF));
  for (std::size_t i = 0; i < (hash >> 20) % 10; ++i)
    ids.push_back(static_cast<TokenId>((hash >> (21 + i)) & (i == 7 ? 0xFFFFFFF : 0xFFFFF)));
  if ((hash >> 50) % 50 == 0) ids.clear();
}

TEST(WordCache, GivesWhatWasMade) {
  WordCache cache;
  const RandomStream dice(4, "word cache test");
  std::uint64_t at = 0;
  for (int round = 0; round < 200'000; ++round) {
    // Many words, so that entries are overwritten, and each of them several times.
    const std::uint64_t number = dice.below(at++, 60'000);
    std::string word;
    const RandomStream letters(number, "letters");
    for (std::uint64_t i = 0; i < number % 21; ++i) word += static_cast<char>(letters.below(i, 256));
    std::vector<TokenId> expected;
    made_up(word, expected);
    const std::string padded = word + std::string(16, static_cast<char>(letters.below(99, 256)));
    const bool spare = round % 2 == 0;
    const std::string_view view = spare ? std::string_view(padded).substr(0, word.size()) : std::string_view(word);
    cache.buffer.clear();
    cache.append(cache.ask(view, spare ? padded.size() : word.size()), cache.buffer, made_up);
    const auto tokens = cache.buffer.tokens();
    ASSERT_EQ(std::vector<TokenId>(tokens.begin(), tokens.end()), expected) << number;
  }
}

TEST(WordCache, ZerosInsideAWordAreNotItsEnd) {
  WordCache cache;
  int made = 0;
  const auto count = [&](std::string_view, std::vector<TokenId>& ids) { ids.push_back(static_cast<TokenId>(++made)); };
  const std::string zeros(20, '\0');
  for (const std::size_t n : {1, 2, 8, 9, 15, 16, 1, 2, 8, 9, 15, 16})
    cache.append(cache.ask({zeros.data(), n}, 20), cache.buffer, count);
  EXPECT_EQ(made, 6);
}

}  // namespace
}  // namespace trireme::data
