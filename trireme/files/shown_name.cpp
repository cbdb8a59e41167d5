#include "trireme/files/shown_name.hpp"

#include <utility>

#include "trireme/base/utf8.hpp"

namespace trireme::files {
namespace {

/// The code point at `i` of well-formed UTF-8, and its length in bytes.
std::pair<char32_t, std::size_t> code_point_at(std::string_view name, std::size_t i) {
  const auto lead = static_cast<unsigned char>(name[i]);
  const std::size_t bytes = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  char32_t point = bytes == 1 ? lead : lead & (0x7FU >> bytes);
  for (std::size_t n = 1; n < bytes && i + n < name.size(); ++n)
    point = point << 6 | (static_cast<unsigned char>(name[i + n]) & 0x3FU);
  return {point, bytes};
}

bool is_control(char32_t point) { return point < 0x20 || (point >= 0x7F && point < 0xA0); }

/// Invisible characters that can reorder the displayed name or break the line.
bool is_direction_or_line(char32_t point) {
  return point == 0x061C || (point >= 0x200B && point <= 0x200F) || (point >= 0x2028 && point <= 0x202E) ||
         (point >= 0x2060 && point <= 0x206F) || point == 0xFEFF;
}

/// Control characters other than `kept` are escaped as \u001b, and `marked` ones get a backslash.
void append_shown(std::string& out, std::string_view words, std::string_view kept, std::string_view marked) {
  const std::string valid = valid_utf8(words);
  for (std::size_t i = 0; i < valid.size();) {
    const auto [point, bytes] = code_point_at(valid, i);
    const bool stays = kept.find(valid[i]) != std::string_view::npos;
    if (!stays && (is_control(point) || is_direction_or_line(point))) {
      constexpr std::string_view kHex = "0123456789abcdef";
      out += "\\u";
      for (int shift = 12; shift >= 0; shift -= 4) out += kHex[point >> shift & 15];
    } else {
      if (marked.find(valid[i]) != std::string_view::npos) out += '\\';
      out.append(valid, i, bytes);
    }
    i += bytes;
  }
}

}  // namespace

bool has_control_character(std::string_view name) {
  for (std::size_t i = 0; i < name.size(); ++i) {
    const auto byte = static_cast<unsigned char>(name[i]);
    if (byte < 0x20 || byte == 0x7F) return true;
    if (byte == 0xC2 && i + 1 < name.size() && static_cast<unsigned char>(name[i + 1]) < 0xA0) return true;  // C1
  }
  return false;
}

std::string shown_name(std::string_view name, std::size_t max_bytes) {
  std::string out = "\"";
  append_shown(out, name.substr(0, max_bytes), "", "\"\\");  // a truncated character becomes U+FFFD
  out += '"';
  if (name.size() > max_bytes) out += "... (" + std::to_string(name.size()) + " bytes)";
  return out;
}

std::string shown_text(std::string_view words) {
  std::string out;
  append_shown(out, words, "\n\t", "");
  return out;
}

}  // namespace trireme::files
