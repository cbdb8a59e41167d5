#include "trireme/data/tokenizer/byte_alphabet.hpp"

#include <array>

#include "trireme/data/tokenizer/unicode.hpp"

namespace trireme::data {
namespace {

constexpr bool is_printable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

constexpr std::array<char32_t, 256> make_characters() {
  std::array<char32_t, 256> out{};
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte)
    out[static_cast<std::size_t>(byte)] = is_printable(byte) ? static_cast<char32_t>(byte) : next++;
  return out;
}
constexpr std::array<char32_t, 256> kCharacters = make_characters();

constexpr std::array<short, 0x144> make_bytes() {
  std::array<short, 0x144> out{};
  out.fill(-1);
  for (std::size_t byte = 0; byte < 256; ++byte) out[kCharacters[byte]] = static_cast<short>(byte);
  return out;
}
constexpr std::array<short, 0x144> kBytes = make_bytes();

}  // namespace

char32_t char_of_byte(unsigned char byte) { return kCharacters[byte]; }

std::string spelt_as_characters(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) append_utf8(out, kCharacters[static_cast<unsigned char>(byte)]);
  return out;
}

std::optional<std::string> bytes_of_spelling(std::string_view spelling) {
  std::string out;
  while (!spelling.empty()) {
    const CodePoint c = first_code_point(spelling);
    if (!c.well_formed || c.value >= kBytes.size() || kBytes[c.value] < 0) return std::nullopt;
    out += static_cast<char>(kBytes[c.value]);
    spelling.remove_prefix(c.bytes);
  }
  return out;
}

}  // namespace trireme::data
