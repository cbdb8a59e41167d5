#include "trireme/data/tokenizer/stream_decoder.hpp"

#include <gtest/gtest.h>

#include "trireme/base/utf8.hpp"
#include "trireme/testing/tokenizer_helpers.hpp"

namespace trireme::data {
namespace {

TEST(StreamDecoder, NeverEndsInsideACharacterAndLosesNothing) {
  const Tokenizer tokenizer = tokenizer_of(trained_json());
  const RandomStream dice(5, "stream decoder test");
  for (std::uint64_t i = 0; i < 3000; ++i) {
    // Tokens of texts, and random tokens: many of these can never be UTF-8.
    std::vector<TokenId> ids = tokenizer.encode(random_text(i));
    if (i % 2 == 0)
      for (TokenId& id : ids) id = static_cast<TokenId>(dice.below(i * 1000 + (&id - ids.data()), 500));
    StreamDecoder decoder(tokenizer);
    std::string all;
    for (const TokenId id : ids) {
      const std::string part = decoder.push(id);
      ASSERT_TRUE(is_utf8(part));
      all += part;
    }
    all += decoder.finish();
    ASSERT_EQ(all, valid_utf8(tokenizer.decode(ids)));
  }
}

TEST(StreamDecoder, WaitsForTheRestOfACharacter) {
  const Tokenizer bytes = Tokenizer::load("bytes");
  StreamDecoder decoder(bytes);
  EXPECT_EQ(decoder.push(0xE2), "");
  EXPECT_EQ(decoder.push(0x82), "");
  EXPECT_EQ(decoder.push(0xAC), "€");
  EXPECT_EQ(decoder.push(0xE2), "");
  EXPECT_EQ(decoder.push('a'), "\uFFFDa");  // can no longer be completed
  EXPECT_EQ(decoder.push(0xF0), "");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
}

}  // namespace
}  // namespace trireme::data
