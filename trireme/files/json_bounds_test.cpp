#include "trireme/files/json_bounds.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/testing/files_helpers.hpp"

namespace trireme::files {
namespace {

using ::testing::HasSubstr;

std::string bounds_refusal(const std::string& json) {
  return message_of<CheckpointError>([&] { check_json_bounds(json, "x"); });
}

TEST(JsonBounds, BoundsAreExact) {
  const std::string text_(kMaxJsonTextBytes, 'a'), gap(kMaxJsonGapBytes, ' ');
  EXPECT_EQ(bounds_refusal(""), "no error");
  EXPECT_EQ(bounds_refusal(gap + "\"" + text_ + "\"" + gap + "\"\"" + gap), "no error");
  EXPECT_EQ(bounds_refusal("{\"" + text_ + "a\"}"),
            "x: a text of 1048577 bytes at byte 1; at most 1048576 are allowed");
  EXPECT_THAT(bounds_refusal("\"\"" + gap + " "),
              HasSubstr("x: 65537 bytes without a text from byte 2 on; at most 65536 are allowed between two texts"));
  EXPECT_THAT(bounds_refusal("\"" + text_ + text_), HasSubstr("a text of 2097152 bytes"));  // without its end
}

TEST(JsonBounds, TheWholeIsBounded) {
  std::string json;
  while (json.size() < kMaxJsonBytes) json += "\"" + std::string(65'534, 'a') + "\"";
  EXPECT_EQ(bounds_refusal(json), "no error");
  EXPECT_EQ(bounds_refusal(json + " "),
            "x: 33554433 bytes of JSON; at most 33554432 are allowed\n  fix: write the tensors to several files");
}

TEST(JsonBounds, EscapedQuotesDoNotEndAText) {
  const std::string half(kMaxJsonTextBytes / 2, 'a');
  EXPECT_THAT(bounds_refusal("\"" + half + "\\\"" + half + "\""), HasSubstr("a text of 1048578 bytes"));
  EXPECT_EQ(bounds_refusal("\"" + half + "\\\\\"" + "\"" + half + "\""), "no error");
  EXPECT_EQ(bounds_refusal("\"\\"), "no error");
  EXPECT_EQ(bounds_refusal("\"a\\"), "no error");
}

TEST(JsonBounds, ANulEndsNothing) {
  EXPECT_EQ(bounds_refusal(std::string("{}\0{}", 5)), "x: a NUL at byte 2 of its JSON");
  EXPECT_EQ(bounds_refusal(std::string("{\"\0\"}", 5)), "x: a NUL at byte 2 of its JSON");
}

TEST(JsonBounds, FaultsAreShortAndPrintable) {
  EXPECT_EQ(json_fault("[json.exception.parse_error.101] parse error at line 1, column 9: syntax error while parsing "
                       "value - invalid literal; last read: '\"\x1b'"),
            "syntax error while parsing value - invalid literal");
  EXPECT_EQ(json_fault("[json.exception.out_of_range.406] number overflow parsing '1e400'"),
            "number overflow parsing '1e400'");
  EXPECT_EQ(json_fault("\x1b[2J"), "\\u001b[2J");
  EXPECT_LT(json_fault("number " + std::string(100'000, '9')).size(), 200U);
}

}  // namespace
}  // namespace trireme::files
