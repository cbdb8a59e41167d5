#include "trireme/base/shell_word.hpp"

#include <algorithm>
#include <string_view>

namespace trireme {

std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,+@%";
  const auto is_plain = [&](char c) { return kPlain.find(c) != std::string_view::npos; };
  if (!word.empty() && std::ranges::all_of(word, is_plain)) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace trireme
