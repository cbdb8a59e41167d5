#include "trireme/base/listed.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"

namespace trireme {

std::string listed(const std::vector<std::string>& lines) {
  constexpr std::size_t kShown = 8;
  std::string out;
  for (std::size_t i = 0; i < std::min(kShown, lines.size()); ++i) out += "\n  " + lines[i];
  if (lines.size() > kShown) out += text("\n  and ", lines.size() - kShown, " more");
  return out;
}

}  // namespace trireme
