#include "trireme/base/json_text.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "trireme/base/philox.hpp"
#include "trireme/base/utf8.hpp"

namespace trireme {
namespace {

TEST(JsonString, EscapesWhatJsonEscapes) {
  EXPECT_EQ(json_string("loss"), R"("loss")");
  EXPECT_EQ(json_string("a\"b\\c"), R"("a\"b\\c")");
  EXPECT_EQ(json_string("\n\r\t"), R"("\n\r\t")");
  EXPECT_EQ(json_string(std::string("\0\x1F\x7F", 3)), "\"\\u0000\\u001f\x7F\"");
  EXPECT_EQ(json_string("µ 😀"), "\"µ 😀\"");
}

TEST(JsonString, ReplacesWhatIsNotUtf8) { EXPECT_EQ(json_string("a\xFFz"), "\"a\uFFFDz\""); }

/// Whether `text` is a JSON string, by the grammar of RFC 8259.
bool is_json_string(const std::string& text) {
  if (text.size() < 2 || text.front() != '"' || text.back() != '"' || valid_utf8(text) != text) return false;
  for (std::size_t i = 1; i + 1 < text.size(); ++i) {
    if (static_cast<unsigned char>(text[i]) < 0x20 || text[i] == '"') return false;
    if (text[i] != '\\') continue;
    ++i;
    if (i + 1 == text.size() || std::string("\"\\/bfnrtu").find(text[i]) == std::string::npos) return false;
  }
  return true;
}

TEST(JsonString, IsValidWhateverComesIn) {
  const RandomStream random(1, "bytes");
  for (std::uint64_t i = 0; i < 100'000; i += 8) {
    std::string bytes;
    for (std::uint64_t k = i; k < i + 8; ++k) bytes += static_cast<char>(random.below(k, k % 2 == 0 ? 256 : 96));
    ASSERT_TRUE(is_json_string(json_string(bytes))) << json_string(bytes);
  }
}

TEST(JsonNumber, IsTheShortestThatReadsBack) {
  EXPECT_EQ(json_number(0.1), "0.1");
  EXPECT_EQ(json_number(2.0), "2");
  EXPECT_EQ(json_number(-1.5e-7), "-1.5e-07");
  EXPECT_EQ(json_number(1e300), "1e+300");
  EXPECT_EQ(json_number(-std::numeric_limits<double>::min()), "-2.2250738585072014e-308");
}

TEST(JsonNumber, HasStringsForWhatIsNoNumber) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(json_number(std::nan("")), R"("NaN")");
  EXPECT_EQ(json_number(infinity), R"("Infinity")");
  EXPECT_EQ(json_number(-infinity), R"("-Infinity")");
}

TEST(JsonNumber, WritesIntegersInFull) {
  EXPECT_EQ(json_number(3), "3");
  EXPECT_EQ(json_number(std::numeric_limits<std::int64_t>::min()), "-9223372036854775808");
  EXPECT_EQ(json_number(~std::uint64_t{0}), "18446744073709551615");
}

TEST(JsonNumber, ReadsBackAsTheSameNumber) {
  const RandomStream random(2, "doubles");
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    const auto value = std::bit_cast<double>(random.bits(i));
    if (!std::isfinite(value)) continue;
    ASSERT_EQ(std::strtod(json_number(value).c_str(), nullptr), value) << json_number(value);
  }
}

}  // namespace
}  // namespace trireme
