#pragma once
// A layout in one word: "dp2.tp2.zero3".
#include <cstdint>
#include <map>
#include <string>

namespace trireme::cli {

struct NamedLayout {
  std::string name;
  std::map<std::string, std::int64_t> keys;  // of [parallelism]

  std::int64_t degree(const std::string& axis) const {
    const auto found = keys.find(axis);
    return found == keys.end() ? 1 : found->second;
  }
  std::int64_t ranks() const { return degree("dp") * degree("tp") * degree("pp") * degree("cp"); }
};

/// dp, tp, pp, cp, ep and zero, each at most once; axes that are not listed are 1. ConfigError names the word.
/// `option`: the flag that it comes from.
NamedLayout parse_named_layout(const std::string& words, const std::string& option);

}  // namespace trireme::cli
