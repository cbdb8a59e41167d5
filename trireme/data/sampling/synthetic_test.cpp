#include "trireme/data/sampling/synthetic.hpp"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/layout_helpers.hpp"

namespace trireme::data {
namespace {

std::vector<std::uint32_t> tokens_of(const TokenSource& source, std::int64_t first, std::int64_t count) {
  std::vector<std::uint32_t> tokens(static_cast<std::size_t>(count));
  source.read(first, tokens);
  return tokens;
}

TEST(Synthetic, APieceIsThatPartOfTheWhole) {
  const SyntheticTokens source(3, 1000, 2000);
  const std::vector<std::uint32_t> whole = tokens_of(source, 0, 2000);
  for (const std::int64_t first : {0, 1, 255, 256, 257, 700, 1999})
    for (const std::int64_t count : {0, 1, 256, 600}) {
      if (first + count > 2000) continue;
      EXPECT_EQ(tokens_of(source, first, count), std::vector(whole.begin() + first, whole.begin() + first + count));
    }
  EXPECT_EQ(source.document_ends(0, 2000), (std::vector<std::int64_t>{256, 512, 768, 1024, 1280, 1536, 1792, 2000}));
  EXPECT_EQ(source.document_ends(256, 256), (std::vector<std::int64_t>{512}));
  EXPECT_EQ(source.document_ends(255, 256), (std::vector<std::int64_t>{256}));
  EXPECT_EQ(source.document_ends(1990, 9), (std::vector<std::int64_t>{}));
  EXPECT_EQ(source.num_documents(), 8);
  EXPECT_NE(whole, tokens_of(SyntheticTokens(4, 1000, 2000), 0, 2000));
}

TEST(Synthetic, ItsEntropyIsWhatAModelOfItsRuleMeasures) {
  for (const std::int64_t vocab_size : {2, 17, 50'257}) {
    const std::int64_t count = 200'000;
    const SyntheticTokens source(5, vocab_size, count);
    const std::vector<std::uint32_t> tokens = tokens_of(source, 0, count);
    const double other = 0.1 / static_cast<double>(vocab_size);
    double loss = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      EXPECT_LT(tokens[i], vocab_size);
      const bool first = i % 256 == 0;
      const bool usual = !first && tokens[i] == source.usual_next(tokens[i - 1]);
      loss -= std::log(first ? 1 / static_cast<double>(vocab_size) : usual ? 0.9 + other : other);
    }
    EXPECT_NEAR(loss / static_cast<double>(count), source.entropy_per_token(), 0.03) << vocab_size;
    EXPECT_LT(source.entropy_per_token(), std::log(vocab_size));
  }
}

TEST(Synthetic, WrongNumbersAreNamed) {
  EXPECT_THROW(SyntheticTokens(1, 1, 10), ConfigError);
  EXPECT_THROW(SyntheticTokens(1, 10, 0), ConfigError);
  EXPECT_EQ(message_of<DataError>([] { tokens_of(SyntheticTokens(1, 10, 100), 90, 11); }),
            "tokens 90 to 101 of synthetic(seed 1, vocab_size 10), which has 100");
}

}  // namespace
}  // namespace trireme::data
