#include "trireme/comm/held_parts.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

constexpr std::size_t kShownParts = 5;

std::string ranks_text(const std::set<int>& ranks) {
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  std::size_t i = 0;
  for (const int rank : ranks) out += text(i++ == 0 ? "" : i == ranks.size() ? " and " : ", ", rank);
  return out;
}

}  // namespace

std::string lines_of(const std::vector<HeldPart>& parts) {
  std::string out;
  for (const HeldPart& part : parts) out += part.hash + " " + part.what + "\n";
  return out;
}

std::vector<HeldPart> held_parts_in(const std::string& lines) {
  std::vector<HeldPart> out;
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);)
    out.push_back({.what = line.substr(line.find(' ') + 1), .hash = line.substr(0, line.find(' '))});
  return out;
}

std::string differences_of_replicas(const std::vector<std::vector<HeldPart>>& ranks, const std::vector<int>& numbers) {
  const auto number_of = [&numbers](std::size_t rank) {
    return numbers.empty() ? static_cast<int>(rank) : numbers.at(rank);
  };
  std::map<std::string, std::map<std::string, std::set<int>>> holders;  // by part, by hash
  std::vector<std::string> order;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    for (const HeldPart& part : ranks[rank]) {
      const auto [known, is_new] = holders.try_emplace(part.what);
      if (is_new) order.push_back(part.what);
      known->second[part.hash].insert(number_of(rank));
    }
  std::vector<std::string> lines;
  std::set<int> guilty;
  for (const std::string& what : order) {
    const auto& by_hash = holders[what];
    if (by_hash.size() < 2) continue;
    const auto most = std::ranges::max_element(by_hash, {}, [](const auto& each) { return each.second.size(); });
    const auto as_many =
        std::ranges::count_if(by_hash, [&](const auto& each) { return each.second.size() == most->second.size(); });
    std::set<int> others;
    for (const auto& [hash, holding] : by_hash)
      if (hash != most->first) others.insert(holding.begin(), holding.end());
    if (as_many == 1) {
      guilty.insert(others.begin(), others.end());
      lines.push_back(text(what, ": ", ranks_text(others), ", not as ", ranks_text(most->second)));
    } else {
      lines.push_back(text(what, ": ", ranks_text(most->second), ", not as ", ranks_text(others),
                           "; none of them is in the majority"));
    }
  }
  if (lines.empty()) return "";
  std::string out = text("replicas differ in ", lines.size(), lines.size() == 1 ? " tensor" : " tensors",
                         guilty.empty() ? ""
                                        : text(": ", ranks_text(guilty), guilty.size() == 1 ? " differs" : " differ",
                                               " from the majority"));
  for (std::size_t i = 0; i < std::min(lines.size(), kShownParts); ++i) out += "\n  " + lines[i];
  if (lines.size() > kShownParts) out += text("\n  and ", lines.size() - kShownParts, " more");
  return out;
}

}  // namespace trireme
