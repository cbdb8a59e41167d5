#include "trireme/base/utf8.hpp"

#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "trireme/base/philox.hpp"

namespace trireme {
namespace {

TEST(ValidUtf8, KeepsWhatIsWellFormed) {
  const std::string text = "a\n\x7F µ – 漢 😀 \u00e9\uD7FF\uE000\U0010FFFF";
  EXPECT_EQ(valid_utf8(text), text);
}

TEST(ValidUtf8, ReplacesIllFormedSequencesAsPythonDoes) {
  const std::string bad = "\uFFFD";
  EXPECT_EQ(valid_utf8("\x80"
                       "abc"),
            bad + "abc");
  EXPECT_EQ(valid_utf8("\xE2\x82"), bad);  // truncated
  EXPECT_EQ(valid_utf8("\xE2\x82"
                       "a"),
            bad + "a");  // the next byte is not consumed
  EXPECT_EQ(valid_utf8("\xC3("), bad + "(");
  EXPECT_EQ(valid_utf8("\xF0\x9F\x98"), bad);
  EXPECT_EQ(valid_utf8("\xC0\xAF"), bad + bad);                      // overlong
  EXPECT_EQ(valid_utf8("\xE0\x9F\xBF"), bad + bad + bad);            // overlong
  EXPECT_EQ(valid_utf8("\xF0\x80\x80\x80"), bad + bad + bad + bad);  // overlong
  EXPECT_EQ(valid_utf8("\xED\xA0\x80"), bad + bad + bad);            // a surrogate
  EXPECT_EQ(valid_utf8("\xF4\x90\x80\x80"), bad + bad + bad + bad);  // above U+10FFFF
  EXPECT_EQ(valid_utf8("\xF5"), bad);
}

TEST(ValidUtf8, DoesNotLookBeyondItsText) { EXPECT_EQ(valid_utf8(std::string_view("\xE2\x82\xAC", 2)), "\uFFFD"); }

TEST(ValidUtf8, LeavesNothingToReplace) {
  const RandomStream random(1, "bytes");
  for (std::uint64_t i = 0; i < 200'000; i += 8) {
    std::string bytes;
    for (std::uint64_t k = i; k < i + 8; ++k) bytes += static_cast<char>(random.below(k, 256));
    const std::string valid = valid_utf8(bytes);
    ASSERT_EQ(valid_utf8(valid), valid) << i;
  }
}

TEST(DisplayWidth, CountsCodePointsAndNoColours) {
  EXPECT_EQ(display_width(""), 0U);
  EXPECT_EQ(display_width("loss"), 4U);
  EXPECT_EQ(display_width("12 µs – ok"), 10U);
  EXPECT_EQ(display_width("\x1B[1m2.31\x1B[0m"), 4U);
  EXPECT_EQ(display_width("a\x1B[3"), 1U);  // a sequence that never ends shows nothing
}

}  // namespace
}  // namespace trireme
