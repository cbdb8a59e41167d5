#include "trireme/data/tokenizer/fast_split.hpp"

#include <algorithm>
#include <cstdlib>

#include <gtest/gtest.h>

#include "trireme/data/tokenizer/pattern.hpp"
#include "trireme/testing/tokenizer_helpers.hpp"

namespace trireme::data {
namespace {

template <KnownPattern kPattern>
std::vector<std::string> by_hand(const std::string& text) {
  std::vector<std::string> pieces;
  const FastSplit<kPattern> split;
  const char* end = text.data() + text.size();
  for (const char* at = text.data(); at != end;) {
    const char* behind = split.next(at, end);
    pieces.emplace_back(at, behind);
    at = behind;
  }
  return pieces;
}

std::vector<std::string> by_regex(const Pattern& pattern, const std::string& text) {
  std::vector<std::string> pieces;
  for (const Span& span : pattern.split(text)) pieces.push_back(text.substr(span.begin, span.end - span.begin));
  return pieces;
}

template <KnownPattern kPattern>
void expect_equal(std::string_view regex) {
  const Pattern pattern(regex);
  ASSERT_EQ(known_pattern(regex), kPattern);
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    const std::string one = random_text(i);
    if (is_newer_than_pcre2(one)) continue;
    ASSERT_EQ(by_hand<kPattern>(one), by_regex(pattern, one)) << one;
  }
  // Every code point, or every 37th, at all positions where its class matters.
  const char32_t stride = std::getenv("TRIREME_CAMPAIGN") ? 1 : 37;
  for (char32_t value = 0; value < 0x110000; value += value < 0x3000 ? 1 : stride) {
    if (value >= 0xD800 && value < 0xE000) continue;
    std::string c;
    append_utf8(c, value);
    if (is_newer_than_pcre2(c)) continue;
    const std::string one = "a" + c + "b" + c + c + " " + c + "1" + c + "\n" + c + " x '" + c + " y  " + c +
                            "longer words" + c + "follow here";
    ASSERT_EQ(by_hand<kPattern>(one), by_regex(pattern, one)) << static_cast<std::uint32_t>(value);
  }
}

TEST(FastSplit, Gpt2IsItsRegularExpression) { expect_equal<KnownPattern::gpt2>(kGpt2Pattern); }
TEST(FastSplit, Llama3IsItsRegularExpression) { expect_equal<KnownPattern::llama3>(kLlama3Pattern); }
TEST(FastSplit, Qwen2IsItsRegularExpression) { expect_equal<KnownPattern::qwen2>(kQwen2Pattern); }

TEST(FastSplit, KnownExamples) {
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(by_hand<KnownPattern::gpt2>("Hello  world's 1234\n\n x"),
            (Pieces{"Hello", " ", " world", "'s", " 1234", "\n\n", " x"}));
  EXPECT_EQ(by_hand<KnownPattern::llama3>("Hello  world'S 1234\n\n x"),
            (Pieces{"Hello", " ", " world", "'S", " ", "123", "4", "\n\n", " x"}));
  EXPECT_EQ(by_hand<KnownPattern::qwen2>("(it) 12!!\n"), (Pieces{"(it", ")", " ", "1", "2", "!!\n"}));
}

}  // namespace
}  // namespace trireme::data
