#include "trireme/train/replica_check.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <sstream>

#include "trireme/base/error.hpp"
#include "trireme/comm/group_text.hpp"

namespace trireme {
namespace {

constexpr std::size_t kShownParts = 5;

std::string ranks_text(const std::set<std::size_t>& ranks) {
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  std::size_t i = 0;
  for (const std::size_t rank : ranks) out += text(i++ == 0 ? "" : i == ranks.size() ? " and " : ", ", rank);
  return out;
}

}  // namespace

void ReplicaCheck::add(const std::vector<StateSlice>& slices) {
  for (const StateSlice& slice : slices) {
    const at::Tensor host = slice.values.detach().contiguous().cpu();
    const std::span bytes(static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes());
    parts_.push_back(
        {.what = text(slice.name, " (", slice.kind, ") ", str(slice.box)), .hash = files::str(files::xxh3(bytes))});
  }
}

void ReplicaCheck::compare(World& world, std::int64_t step) const {
  std::string lines;
  for (const HeldPart& part : parts_) lines += part.hash + " " + part.what + "\n";
  const std::vector<std::string> of_ranks = gather_texts(world.control(), lines);
  std::string wrong;
  if (world.rank() == 0) {
    std::vector<std::vector<HeldPart>> ranks;
    for (const std::string& each : of_ranks) {
      std::vector<HeldPart>& parts = ranks.emplace_back();
      std::istringstream in(each);
      for (std::string line; std::getline(in, line);)
        parts.push_back({.what = line.substr(line.find(' ') + 1), .hash = line.substr(0, line.find(' '))});
    }
    wrong = differences_of_replicas(ranks);
  }
  wrong = broadcast_text(world.control(), wrong);
  require<ComparisonFailed>(wrong.empty(), "step ", step, ": ", wrong,
                            "\n  ranks that hold the same part must hold the same bits: since the last comparison the "
                            "memory, a kernel or the communication of a rank was at fault",
                            "\n  fix: resume from a checkpoint before this step; if it is the same rank again, without "
                            "its host");
}

std::string differences_of_replicas(const std::vector<std::vector<HeldPart>>& ranks) {
  std::map<std::string, std::map<std::string, std::set<std::size_t>>> holders;  // by part, by hash
  std::vector<std::string> order;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    for (const HeldPart& part : ranks[rank]) {
      const auto [known, is_new] = holders.try_emplace(part.what);
      if (is_new) order.push_back(part.what);
      known->second[part.hash].insert(rank);
    }
  std::vector<std::string> lines;
  std::set<std::size_t> guilty;
  for (const std::string& what : order) {
    const auto& by_hash = holders[what];
    if (by_hash.size() < 2) continue;
    const auto most = std::ranges::max_element(by_hash, {}, [](const auto& each) { return each.second.size(); });
    const auto as_many =
        std::ranges::count_if(by_hash, [&](const auto& each) { return each.second.size() == most->second.size(); });
    std::set<std::size_t> others;
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
                         guilty.empty() ? "" : text(": ", ranks_text(guilty), " holds other bits than most"));
  for (std::size_t i = 0; i < std::min(lines.size(), kShownParts); ++i) out += "\n  " + lines[i];
  if (lines.size() > kShownParts) out += text("\n  and ", lines.size() - kShownParts, " more");
  return out;
}

}  // namespace trireme
