#include "trireme/data/tokenizer/text_stream.hpp"

#include <gtest/gtest.h>

namespace trireme::data {
namespace {

/// The pieces of a text whose tokens are its bytes, joined by "|".
std::string pieces(const std::string& text, std::vector<std::string> stops = {}, const std::string& before = "") {
  const Tokenizer bytes = Tokenizer::load("bytes");
  TextStream stream(bytes, bytes.encode(before), std::move(stops));
  std::string out;
  const auto add = [&](const std::string& piece) { out += (out.empty() || piece.empty() ? "" : "|") + piece; };
  for (const TokenId id : bytes.encode(text)) add(stream.add(id));
  add(stream.finish());
  return out;
}

TEST(TextStream, NoPieceIsHalfACharacter) {
  EXPECT_EQ(pieces("aé€😀b"), "a|é|€|😀|b");
  EXPECT_EQ(pieces("ab", {}, "a long text before it, of more than eight bytes é"), "a|b");
}

TEST(TextStream, BytesThatAreNoCharacterAreReplaced) {
  EXPECT_EQ(pieces("a\xE2\x82"), "a|\xEF\xBF\xBD");
  EXPECT_EQ(pieces("\xFFz"), "\xEF\xBF\xBD|z");
}

TEST(TextStream, EndsBeforeAStopString) {
  EXPECT_EQ(pieces("one two three", {" t"}), "o|n|e");
  EXPECT_EQ(pieces("a\n\nb", {"\n\n", "b"}), "a");
  EXPECT_EQ(pieces("a\nb", {"\n\n"}), "a|\nb") << "a piece that may become a stop string is held back";
  EXPECT_EQ(pieces("a\n", {"\n\n"}), "a|\n");
  EXPECT_EQ(pieces("aab", {"ab"}), "a");
}

}  // namespace
}  // namespace trireme::data
