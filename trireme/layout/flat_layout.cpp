#include "trireme/layout/flat_layout.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

int64_t rounded_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

Range FlatLayout::shard(size_t b, int rank) const {
  require(b < buckets.size() && rank >= 0 && rank < shards, "shard ", rank, " of ", shards, " of bucket ", b, " of ",
          buckets.size());
  const int64_t size = buckets[b].numel / shards;
  return {rank * size, (rank + 1) * size};
}

std::vector<FlatPiece> FlatLayout::pieces(size_t b, int rank) const {
  const Range mine = shard(b, rank);
  std::vector<FlatPiece> out;
  for (const FlatSlot& slot : buckets[b].slots) {
    const Range both{std::max(mine.begin, slot.offset), std::min(mine.end, slot.offset + slot.numel)};
    if (both.size() > 0)
      out.push_back({slot.item, {both.begin - slot.offset, both.end - slot.offset}, both.begin - mine.begin});
  }
  return out;
}

FlatLayout flat_layout(std::span<const FlatItem> items, int64_t bucket_elements, int shards) {
  require<ConfigError>(bucket_elements >= 1 && shards >= 1, "buckets of ", bucket_elements, " elements in ", shards,
                       " shards: at least 1");
  FlatLayout layout{.buckets = {}, .numel = 0, .shards = shards};
  FlatBucket open;
  int64_t used = 0;
  const auto close = [&] {
    if (open.slots.empty()) return;
    open.begin = layout.numel;
    open.numel = rounded_up(used, kFlatBlock * shards);
    layout.numel += open.numel;
    layout.buckets.push_back(std::move(open));
    open = {};
    used = 0;
  };
  for (size_t i = 0; i < items.size(); ++i) {
    require(items[i].numel >= 0, "tensor ", i, " of ", items[i].numel, " elements");
    if (items[i].alone) close();
    open.slots.push_back({i, used, items[i].numel});
    used += rounded_up(items[i].numel, kFlatAlign);
    if (items[i].alone || used >= bucket_elements) close();
  }
  close();
  return layout;
}

}  // namespace trireme
