#include "trireme/data/tokenizer/byte_fallback.hpp"

#include <algorithm>

namespace trireme::data {

std::optional<unsigned char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  unsigned value = 0;
  for (const char c : token.substr(3, 2)) {
    const std::size_t digit = std::string_view("0123456789ABCDEF").find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    value = value * 16 + static_cast<unsigned>(digit);
  }
  return static_cast<unsigned char>(value);
}

bool ByteFallbacks::append(std::string_view bytes, std::vector<TokenId>& out) const {
  if (!std::ranges::all_of(bytes, [&](char byte) { return has(static_cast<unsigned char>(byte)); })) return false;
  for (const char byte : bytes) out.push_back(ids_[static_cast<unsigned char>(byte)]);
  return true;
}

}  // namespace trireme::data
