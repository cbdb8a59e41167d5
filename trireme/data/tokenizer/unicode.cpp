#include "trireme/data/tokenizer/unicode.hpp"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

#include <utf8proc.h>

#include "trireme/base/error.hpp"

namespace trireme::data {
namespace {

constexpr char32_t kCodePoints = 0x110000;

std::uint8_t class_of(char32_t value) {
  const auto code = static_cast<utf8proc_int32_t>(value);
  std::uint8_t bits = 0;
  switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: bits = CharClass::letter; break;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: bits = CharClass::number; break;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: bits = CharClass::space; break;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: bits = CharClass::may_compose; break;
    default: break;
  }
  if ((value >= 9 && value <= 13) || value == 0x85) bits = CharClass::space;
  if (value == '\r' || value == '\n') bits |= CharClass::line_break;
  // Hangul vowels and final consonants compose with the preceding consonant.
  const utf8proc_property_t* property = utf8proc_get_property(code);
  if ((value >= 0x1100 && value <= 0x11FF) || property->combining_class != 0) bits |= CharClass::may_compose;
  if (property->decomp_seqindex != static_cast<utf8proc_uint16_t>(-1)) {  // decomposable: does NFC change it?
    std::string alone;
    append_utf8(alone, value);
    if (normalised(alone, NormalForm::nfc) != alone) bits |= CharClass::may_compose;
  }
  return bits;
}

bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

}  // namespace

CodePoint first_code_point(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = at(0);
  if (lead < 0x80) return {lead, 1};
  constexpr CodePoint kAlone{0xFFFD, 1, false};
  if (lead < 0xC2 || lead > 0xF4) return kAlone;
  const unsigned bytes = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (text.size() < bytes) return kAlone;
  char32_t value = lead & (0x7F >> bytes);
  for (unsigned i = 1; i < bytes; ++i) {
    if (!is_continuation(text[i])) return kAlone;
    value = value << 6 | (at(i) & 0x3F);
  }
  const bool overlong = (bytes == 3 && value < 0x800) || (bytes == 4 && value < 0x10000);
  if (overlong || (value >= 0xD800 && value < 0xE000) || value >= kCodePoints) return kAlone;
  return {value, bytes};
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const CodePoint c = first_code_point(text);
    if (!c.well_formed) return false;
    text.remove_prefix(c.bytes);
  }
  return true;
}

void append_utf8(std::string& out, char32_t value) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const auto n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(value), bytes.data());
  out.append(reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(n));
}

const ClassTable& ClassTable::get() {
  static const ClassTable table;
  return table;
}

ClassTable::ClassTable() : classes_storage_(kCodePoints, '\0') {
  for (char32_t value = 0; value < kCodePoints; ++value) classes_storage_[value] = static_cast<char>(class_of(value));
  classes_ = reinterpret_cast<const std::uint8_t*>(classes_storage_.data());
}

bool is_word_character(char32_t value) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(value))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: break;
  }
  const auto within = [&](char32_t first, char32_t last) { return value >= first && value <= last; };
  // Circled and squared letters are symbols with the Unicode property Alphabetic.
  return within(0x200C, 0x200D) || within(0x24B6, 0x24E9) || within(0x1F130, 0x1F149) || within(0x1F150, 0x1F169) ||
         within(0x1F170, 0x1F189);
}

void append_lower_case(std::string& out, char32_t value) {
  constexpr char32_t kDottedI = 0x130;  // the only one that becomes two characters
  if (value == kDottedI)
    out += "i\u0307";
  else
    append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(value))));
}

std::size_t first_grapheme_bytes(std::string_view text) {
  CodePoint before = first_code_point(text);
  std::size_t bytes = before.bytes;
  for (utf8proc_int32_t state = 0; bytes < text.size();) {
    const CodePoint next = first_code_point(text.substr(bytes));
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(before.value),
                                         static_cast<utf8proc_int32_t>(next.value), &state))
      break;
    bytes += next.bytes;
    before = next;
  }
  return bytes;
}

namespace {

/// `text` with long runs of combining marks in canonical order. utf8proc sorts them by bubble sort.
std::string with_sorted_marks(std::string_view text) {
  struct Mark {
    int combining_class;
    std::string_view bytes;
  };
  std::string out;
  std::vector<Mark> run;
  const auto flush = [&] {
    std::ranges::stable_sort(run, {}, &Mark::combining_class);
    for (const Mark& mark : run) out += mark.bytes;
    run.clear();
  };
  while (!text.empty()) {
    const CodePoint c = first_code_point(text);
    const int combining_class = utf8proc_get_property(static_cast<utf8proc_int32_t>(c.value))->combining_class;
    if (combining_class == 0) {
      flush();
      out += text.substr(0, c.bytes);
    } else {
      run.push_back({combining_class, text.substr(0, c.bytes)});
    }
    text.remove_prefix(c.bytes);
  }
  flush();
  return out;
}

bool has_long_run_of_marks(std::string_view text) {
  std::size_t run = 0;
  while (!text.empty()) {
    const CodePoint c = first_code_point(text);
    run = utf8proc_get_property(static_cast<utf8proc_int32_t>(c.value))->combining_class == 0 ? 0 : run + 1;
    if (run > 32) return true;
    text.remove_prefix(c.bytes);
  }
  return false;
}

}  // namespace

std::string normalised(std::string_view text, NormalForm form) {
  std::string sorted;
  if (has_long_run_of_marks(text)) text = sorted = with_sorted_marks(text);
  int options = UTF8PROC_STABLE;
  options |= form == NormalForm::nfc || form == NormalForm::nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::nfkc || form == NormalForm::nfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &made, static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owned(made, &std::free);
  require<DataError>(bytes >= 0, "normalising ", text.size(), " bytes of text failed: ", utf8proc_errmsg(bytes));
  return {reinterpret_cast<const char*>(made), static_cast<std::size_t>(bytes)};
}

bool may_change_in_nfc(std::string_view text) {
  const ClassTable& classes = ClassTable::get();
  while (!text.empty()) {
    if (static_cast<unsigned char>(text[0]) < 0x80) {
      text.remove_prefix(1);
      continue;
    }
    const CodePoint c = first_code_point(text);
    if (!c.well_formed || (classes[c.value] & CharClass::may_compose)) return true;
    text.remove_prefix(c.bytes);
  }
  return false;
}

}  // namespace trireme::data
