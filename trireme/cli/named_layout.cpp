#include "trireme/cli/named_layout.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"

namespace trireme::cli {

NamedLayout parse_named_layout(const std::string& words, const std::string& option) {
  NamedLayout out{.name = words, .keys = {}};
  for (std::size_t begin = 0; begin < words.size();) {
    const std::size_t end = std::min(words.find('.', begin), words.size());
    const std::string word = words.substr(begin, end - begin);
    const std::size_t digit = word.find_first_of("0123456789");
    const std::string key = word.substr(0, digit);
    const bool known = key == "dp" || key == "tp" || key == "pp" || key == "cp" || key == "ep" || key == "zero";
    require<ConfigError>(known && digit != std::string::npos &&
                             word.find_first_not_of("0123456789", digit) == std::string::npos &&
                             word.size() - digit <= 6 && !out.keys.contains(key),
                         option, " ", words, ": ", word,
                         ": must be one of dp, tp, pp, cp, ep and zero, at most once, with a ", "size: dp2.tp2.zero3");
    out.keys[key] = std::stoll(word.substr(digit));
    begin = end + 1;
  }
  require<ConfigError>(!out.keys.empty() && out.ranks() >= 1, option, " ", words, ": must have at least one rank");
  return out;
}

}  // namespace trireme::cli
