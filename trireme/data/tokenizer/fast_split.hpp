#pragma once
// Hand-written versions of the most common pre-tokenizers (GPT-2, Llama 3, Qwen2): an order of magnitude faster than
// their regular expressions, and tested for equality with them (fast_split_test.cpp).
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "trireme/data/tokenizer/unicode.hpp"

static_assert(std::endian::native == std::endian::little,
              "eight bytes of text are read as one number, the first lowest");

namespace trireme::data {

enum class KnownPattern { none, gpt2, llama3, qwen2 };

inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr KnownPattern known_pattern(std::string_view regex) {
  if (regex == kGpt2Pattern) return KnownPattern::gpt2;
  if (regex == kLlama3Pattern) return KnownPattern::llama3;
  if (regex == kQwen2Pattern) return KnownPattern::qwen2;
  return KnownPattern::none;
}

namespace detail {

constexpr std::array<std::uint8_t, 128> ascii_classes() {
  std::array<std::uint8_t, 128> out{};
  for (char c = 'a'; c <= 'z'; ++c) out[static_cast<unsigned char>(c)] = CharClass::letter;
  for (char c = 'A'; c <= 'Z'; ++c) out[static_cast<unsigned char>(c)] = CharClass::letter;
  for (char c = '0'; c <= '9'; ++c) out[static_cast<unsigned char>(c)] = CharClass::number;
  for (const char c : {' ', '\t', '\n', '\v', '\f', '\r'}) out[static_cast<unsigned char>(c)] = CharClass::space;
  out['\n'] |= CharClass::line_break;
  out['\r'] |= CharClass::line_break;
  return out;
}
inline constexpr std::array<std::uint8_t, 128> kAscii = ascii_classes();

/// 0xFF for each of the eight bytes that is an ASCII letter.
constexpr std::uint64_t ascii_letters(std::uint64_t bytes) {
  constexpr std::uint64_t kOnes = 0x0101010101010101, kHigh = 0x80 * kOnes;
  const std::uint64_t lower = (bytes | 0x20 * kOnes) & ~kHigh;
  // The high bit of each byte: >= 'a', <= 'z', and ASCII. No sum carries into the next byte.
  const std::uint64_t letter = (lower + (0x80 - 'a') * kOnes) & ~(lower + (0x80 - 'z' - 1) * kOnes) & ~bytes & kHigh;
  return (letter >> 7) * 0xFF;
}

/// A character in a text: its classes and its end.
struct Char {
  std::uint8_t bits = 0;
  const char* end = nullptr;
};

inline Char wide_char(const char* at, const char* end, const ClassTable& classes) {
  const CodePoint c = first_code_point({at, end});
  return {classes[c.value], at + c.bytes};
}

}  // namespace detail

/// Splits a text into pieces, from left to right. Bytes that are not UTF-8 are characters without a class.
template <KnownPattern kPattern>
class FastSplit {
 public:
  FastSplit() : classes_(ClassTable::get()) {}

  /// The end of the piece that begins at `at` < `end`.
  const char* next(const char* at, const char* end) const {
    constexpr bool kGpt2 = kPattern == KnownPattern::gpt2;
    constexpr std::uint8_t kLetter = CharClass::letter, kNumber = CharClass::number, kSpace = CharClass::space;
    constexpr std::uint8_t kAny = kLetter | kNumber | kSpace;

    // Fast path for most words: ASCII letters, optionally preceded by one leading character. One branch for all.
    if (end - at > 9) {
      std::uint64_t bytes = 0;
      std::memcpy(&bytes, at + 1, 8);
      const int n = std::countr_one(detail::ascii_letters(bytes)) / 8;
      if (n < 8 && kLead[static_cast<unsigned char>(*at)] + (n > 0) >= 2 &&
          static_cast<unsigned char>(at[n + 1]) < 0x80)
        return at + 1 + n;
    }

    const Char first = char_at(at, end);
    if (first.bits & kLetter) return letters(first.end, end);
    if (*at == '\'') {
      if (const char* after = contraction(at, end)) return after;
    }
    if (first.bits & kNumber) return kGpt2 ? run<kNumber>(first.end, end) : numbers(first.end, end);

    // ' ' (GPT-2), or any character except line breaks and numbers, leads the letters after it.
    const bool may_lead = kGpt2 ? *at == ' ' : !(first.bits & CharClass::line_break);
    if (may_lead && first.end != end) {
      const Char second = char_at(first.end, end);
      if (second.bits & kLetter) return letters(second.end, end);
      if (*at == ' ') {
        if (kGpt2 && (second.bits & kNumber)) return run<kNumber>(second.end, end);
        if (!(second.bits & kAny)) return others(second.end, end);
      }
    }
    if (!(first.bits & kSpace)) return others(first.end, end);
    return spaces(at, end);
  }

 private:
  using Char = detail::Char;

  /// 2: an ASCII letter; 1: a possible leading character; 0: neither, or needs the slow path.
  static constexpr std::array<std::uint8_t, 256> kLead = [] {
    std::array<std::uint8_t, 256> lead{};
    for (std::size_t c = 0; c < 128; ++c) {
      const bool line_break_or_number = detail::kAscii[c] & (CharClass::line_break | CharClass::number);
      const bool may_lead = kPattern == KnownPattern::gpt2 ? c == ' ' : c != '\'' && !line_break_or_number;
      lead[c] = detail::kAscii[c] & CharClass::letter ? 2 : may_lead ? 1 : 0;
    }
    return lead;
  }();

  Char char_at(const char* at, const char* end) const {
    const auto byte = static_cast<unsigned char>(*at);
    return byte < 0x80 ? Char{detail::kAscii[byte], at + 1} : detail::wide_char(at, end, classes_);
  }

  /// The end of the letters from `at` on. Eight bytes at a time: a per-character loop mispredicts at every word's end.
  const char* letters(const char* at, const char* end) const {
    while (end - at >= 8) {
      std::uint64_t bytes = 0;
      std::memcpy(&bytes, at, 8);
      const int n = std::countr_one(detail::ascii_letters(bytes)) / 8;
      at += n;
      if (n == 8) continue;
      if (static_cast<unsigned char>(*at) < 0x80) return at;
      break;
    }
    return run<CharClass::letter>(at, end);
  }

  /// The end of the characters of that class from `at` on.
  template <std::uint8_t kClass>
  const char* run(const char* at, const char* end) const {
    while (at != end) {
      const Char c = char_at(at, end);
      if (!(c.bits & kClass)) break;
      at = c.end;
    }
    return at;
  }

  /// Numbers are single digits (Qwen2) or groups of up to three (Llama 3); the first one ends at `at`.
  const char* numbers(const char* at, const char* end) const {
    for (int more = kPattern == KnownPattern::llama3 ? 2 : 0; more > 0 && at != end; --more) {
      const Char c = char_at(at, end);
      if (!(c.bits & CharClass::number)) break;
      at = c.end;
    }
    return at;
  }

  /// Neither spaces nor letters nor numbers, and, except for GPT-2, the line breaks after them.
  const char* others(const char* at, const char* end) const {
    while (at != end) {
      const Char c = char_at(at, end);
      if (c.bits & (CharClass::letter | CharClass::number | CharClass::space)) break;
      at = c.end;
    }
    if (kPattern != KnownPattern::gpt2)
      while (at != end && (*at == '\n' || *at == '\r')) ++at;
    return at;
  }

  /// White space: up to its last line break (not GPT-2); else all of it at the end of the text; else all but the last
  /// character, which belongs to the next piece; else that one character.
  const char* spaces(const char* at, const char* end) const {
    const char* last = at;  // start of the last character of the run
    const char* behind_break = nullptr;
    const char* behind = at;
    while (behind != end) {
      const Char c = char_at(behind, end);
      if (!(c.bits & CharClass::space)) break;
      last = behind;
      behind = c.end;
      if (c.bits & CharClass::line_break) behind_break = behind;
    }
    if (kPattern != KnownPattern::gpt2 && behind_break) return behind_break;
    return behind == end || last == at ? behind : last;
  }

  /// The end of 's, 't, 're, 've, 'm, 'll or 'd at `at`; nullptr if there is none. Case-insensitive except for GPT-2;
  /// then the long s (U+017F) also counts as an s.
  static const char* contraction(const char* at, const char* end) {
    const auto letter = [&](std::ptrdiff_t i) {
      if (end - at <= i) return '\0';
      const char c = at[i];
      return kPattern != KnownPattern::gpt2 && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    };
    switch (letter(1)) {
      case 's':
      case 't':
      case 'm':
      case 'd': return at + 2;
      case 'r':
      case 'v': return letter(2) == 'e' ? at + 3 : nullptr;
      case 'l': return letter(2) == 'l' ? at + 3 : nullptr;
      case '\xC5': return kPattern != KnownPattern::gpt2 && letter(2) == '\xBF' ? at + 3 : nullptr;
      default: return nullptr;
    }
  }

  const ClassTable& classes_;
};

}  // namespace trireme::data
