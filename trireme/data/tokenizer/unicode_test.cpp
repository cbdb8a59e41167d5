#include "trireme/data/tokenizer/unicode.hpp"

#include <gtest/gtest.h>

#include "trireme/base/utf8.hpp"
#include "trireme/testing/tokenizer_helpers.hpp"

namespace trireme::data {
namespace {

TEST(Unicode, CodePointsComeOutOfUtf8AndGoIn) {
  for (char32_t value = 0; value < 0x110000; ++value) {
    if (value >= 0xD800 && value < 0xE000) continue;
    std::string bytes;
    append_utf8(bytes, value);
    const CodePoint c = first_code_point(bytes);
    ASSERT_TRUE(c.value == value && c.bytes == bytes.size() && c.well_formed) << static_cast<std::uint32_t>(value);
  }
}

TEST(Unicode, WhatIsNotUtf8StandsAloneByteByByte) {
  for (const char* bytes : {"\x80", "\xC0\x80", "\xC3", "\xC3(", "\xE2\x82", "\xED\xA0\x80", "\xF0\x80\x80\x80",
                            "\xF4\x90\x80\x80", "\xFF"}) {
    const CodePoint c = first_code_point(bytes);
    EXPECT_FALSE(c.well_formed) << bytes;
    EXPECT_EQ(c.bytes, 1u);
    EXPECT_EQ(c.value, 0xFFFDu);
    EXPECT_FALSE(is_utf8(bytes));
  }
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const std::string one = random_text(i);
    EXPECT_EQ(is_utf8(one), valid_utf8(one) == one);
  }
}

TEST(Unicode, ClassesAreThoseOfRegularExpressions) {
  const ClassTable& classes = ClassTable::get();
  EXPECT_EQ(classes[U'a'], CharClass::letter);
  EXPECT_EQ(classes[U'ſ'] & CharClass::letter, CharClass::letter);
  EXPECT_EQ(classes[U'٣'], CharClass::number);
  EXPECT_EQ(classes[U'½'] & CharClass::number, CharClass::number);
  EXPECT_EQ(classes[U' '], CharClass::space);
  EXPECT_EQ(classes[U'\n'], CharClass::space | CharClass::line_break);
  EXPECT_EQ(classes[0x85] & CharClass::space, CharClass::space);
  EXPECT_EQ(classes[0x180E] & CharClass::space, 0);  // not white space since Unicode 6.3
  EXPECT_EQ(classes[U'_'], 0);
  EXPECT_TRUE(is_word_character(U'_') && is_word_character(U'é') && is_word_character(0x301) &&
              !is_word_character(U'½'));
}

TEST(Unicode, WhatIsSaidToStayInNfcStays) {
  int stayed = 0;
  for (std::uint64_t i = 0; i < 5000; ++i) {
    const std::string one = random_text(i, false);
    if (may_change_in_nfc(one)) continue;
    ++stayed;
    ASSERT_EQ(normalised(one, NormalForm::nfc), one);
  }
  EXPECT_GT(stayed, 1000);
  EXPECT_FALSE(may_change_in_nfc("caf\u00E9 \u4E2D\u6587 \uAC01"));  // already composed: the fast path
  EXPECT_TRUE(may_change_in_nfc("cafe\u0301"));
  EXPECT_EQ(normalised("cafe\u0301", NormalForm::nfc), "caf\u00E9");
  EXPECT_EQ(normalised("\u1100\u1161\u11A8", NormalForm::nfc), "\uAC01");
  EXPECT_EQ(normalised("\uFB01", NormalForm::nfkc), "fi");
  std::string marks = "e", in_order = "e";
  for (int i = 0; i < 40'000; ++i) marks += "\u0301\u0323";  // above, below
  for (int i = 0; i < 40'000; ++i) in_order += "\u0323";
  for (int i = 0; i < 40'000; ++i) in_order += "\u0301";
  EXPECT_EQ(normalised(marks, NormalForm::nfd), in_order);  // and not in quadratic time
  EXPECT_EQ(normalised("\u00E9", NormalForm::nfd), "e\u0301");
}

}  // namespace
}  // namespace trireme::data
