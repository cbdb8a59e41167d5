#pragma once
// From the spelling of a token to its id.
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "trireme/data/tokens/token_id.hpp"

namespace trireme::data {

inline constexpr TokenId kNoToken = 0xFFFFFFFF;

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
using TokenMap = std::unordered_map<std::string, TokenId, TextHash, std::equal_to<>>;

}  // namespace trireme::data
