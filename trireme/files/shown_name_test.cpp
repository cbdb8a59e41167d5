#include "trireme/files/shown_name.hpp"

#include <string>

#include <gtest/gtest.h>

namespace trireme::files {
namespace {

TEST(ShownName, EscapesWhatATerminalWouldActOn) {
  EXPECT_EQ(shown_name("model.layers.0.weight"), "\"model.layers.0.weight\"");
  EXPECT_EQ(shown_name(""), "\"\"");
  EXPECT_EQ(shown_name("a\x1b[31m\n\x7f"), "\"a\\u001b[31m\\u000a\\u007f\"");
  EXPECT_EQ(shown_name(std::string_view("a\0b", 3)), "\"a\\u0000b\"");
  EXPECT_EQ(shown_name("quote \" and \\"), "\"quote \\\" and \\\\\"");
  EXPECT_EQ(shown_name("Zoë 漢字 😀"), "\"Zoë 漢字 😀\"");
  EXPECT_EQ(shown_name("\u0085 \u202E \u2066 \u2028"), "\"\\u0085 \\u202e \\u2066 \\u2028\"");
  EXPECT_EQ(shown_name("\xff\xc3"), "\"\uFFFD\uFFFD\"");
}

TEST(ShownName, IsShort) {
  EXPECT_EQ(shown_name("abcdef", 3), "\"abc\"... (6 bytes)");
  EXPECT_EQ(shown_name("ab\u00EB", 3), "\"ab\uFFFD\"... (4 bytes)");
  EXPECT_LT(shown_name(std::string(1'000'000, '\n')).size(), 700U);
}

TEST(ShownName, ControlCharactersAreFound) {
  for (const char* name : {"a\n", "\x1b", "\x7f", "x\u0080", "x\u009F"}) EXPECT_TRUE(has_control_character(name));
  EXPECT_TRUE(has_control_character(std::string_view("\0", 1)));
  for (const char* name : {"", "a b", "ë", "\u00A0", "漢字 😀", "\u202E"}) EXPECT_FALSE(has_control_character(name));
}

}  // namespace
}  // namespace trireme::files
