#pragma once
// The tokens <0x00> ... <0xFF>, which stand for the bytes of characters that have no token.
#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "trireme/data/tokenizer/token_map.hpp"

namespace trireme::data {

/// "<0xE2>" -> 0xE2
std::optional<unsigned char> fallback_byte(std::string_view token);

class ByteFallbacks {
 public:
  ByteFallbacks() { ids_.fill(kNoToken); }
  void set(unsigned char byte, TokenId id) { ids_[byte] = id; }
  bool has(unsigned char byte) const { return ids_[byte] != kNoToken; }
  /// Appends a token for each byte; false, and nothing is appended, if one has none.
  bool append(std::string_view bytes, std::vector<TokenId>& out) const;

 private:
  std::array<TokenId, 256> ids_;
};

}  // namespace trireme::data
