#include "trireme/base/utf8.hpp"

namespace trireme {
namespace {

unsigned char byte_at(std::string_view text, std::size_t i) { return static_cast<unsigned char>(text[i]); }

bool is_continuation(unsigned char byte) { return (byte & 0xC0) == 0x80; }

struct Sequence {
  std::size_t bytes;
  bool well_formed;
};

/// The sequence that starts at `i`; an ill-formed one ends before the first byte that cannot continue it (Unicode 3.9,
/// table 3-7: the range of the second byte excludes overlong forms, surrogates and code points above U+10FFFF).
Sequence sequence_at(std::string_view text, std::size_t i) {
  const unsigned char lead = byte_at(text, i);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  const std::size_t wanted = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  const unsigned char second_min = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char second_max = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t n = 1; n < wanted; ++n) {
    if (i + n == text.size()) return {n, false};
    const unsigned char byte = byte_at(text, i + n);
    if (n == 1 ? byte < second_min || byte > second_max : !is_continuation(byte)) return {n, false};
  }
  return {wanted, true};
}

}  // namespace

std::string valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const auto [bytes, well_formed] = sequence_at(text, i);
    if (well_formed) {
      out.append(text.substr(i, bytes));
    } else {
      out.append("\uFFFD");
    }
    i += bytes;
  }
  return out;
}

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i, 2) == "\x1B[") {
      const std::size_t end = text.find('m', i);
      if (end == std::string_view::npos) break;
      i = end;
    } else if (!is_continuation(byte_at(text, i))) {
      ++width;
    }
  }
  return width;
}

}  // namespace trireme
