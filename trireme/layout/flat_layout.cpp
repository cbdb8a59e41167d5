#include "trireme/layout/flat_layout.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

std::int64_t rounded_up(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }

/// The first offset at or after `used` where a tensor may begin: Note [Blocks of a flat buffer].
std::int64_t place_behind(std::int64_t used, std::int64_t numel) {
  const std::int64_t aligned = rounded_up(used, kFlatAlign);
  const bool fits = numel < kFlatBlock && aligned % kFlatBlock + numel <= kFlatBlock;
  return fits ? aligned : rounded_up(used, kFlatBlock);
}

FlatBucket one_after_another(std::span<const FlatItem> items, const std::vector<std::size_t>& group) {
  FlatBucket bucket;
  for (const std::size_t i : group) {
    const std::int64_t place = place_behind(bucket.numel, items[i].numel);
    bucket.slots.push_back({i, place, items[i].numel});
    bucket.numel = place + items[i].numel;
  }
  return bucket;
}

/// Each tensor goes to the shard that has the least so far.
FlatBucket whole_in_shards(std::span<const FlatItem> items, const std::vector<std::size_t>& group, int shards) {
  std::vector<FlatBucket> parts(static_cast<std::size_t>(shards));
  for (const std::size_t i : group) {
    FlatBucket& part = *std::ranges::min_element(parts, {}, &FlatBucket::numel);
    const std::int64_t place = place_behind(part.numel, items[i].numel);
    part.slots.push_back({i, place, items[i].numel});
    part.numel = place + items[i].numel;
  }
  const std::int64_t size = rounded_up(std::ranges::max(parts, {}, &FlatBucket::numel).numel, kFlatBlock);
  FlatBucket bucket{.begin = 0, .numel = size * shards, .slots = {}};
  for (std::size_t p = 0; p < parts.size(); ++p)
    for (const FlatSlot& slot : parts[p].slots)
      bucket.slots.push_back({slot.item, static_cast<std::int64_t>(p) * size + slot.offset, slot.numel});
  return bucket;
}

}  // namespace

Range FlatLayout::shard(std::size_t b, int rank) const {
  require(b < buckets.size() && rank >= 0 && rank < shards, "shard ", rank, " of ", shards, " of bucket ", b, " of ",
          buckets.size());
  const std::int64_t size = buckets[b].numel / shards;
  return {rank * size, (rank + 1) * size};
}

std::vector<FlatPiece> FlatLayout::pieces(std::size_t b, int rank) const {
  const Range mine = shard(b, rank);
  std::vector<FlatPiece> out;
  for (const FlatSlot& slot : buckets[b].slots) {
    const Range both{std::max(mine.begin, slot.offset), std::min(mine.end, slot.offset + slot.numel)};
    if (both.size() > 0)
      out.push_back({slot.item, {both.begin - slot.offset, both.end - slot.offset}, both.begin - mine.begin});
  }
  return out;
}

FlatGroups groups_by_size(std::span<const FlatItem> items, std::int64_t bucket_elements) {
  require<ConfigError>(bucket_elements >= 1, "buckets of ", bucket_elements, " elements: at least 1");
  FlatGroups groups;
  bool open = false;
  std::int64_t used = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!open || items[i].alone) {
      groups.emplace_back();
      used = 0;
    }
    groups.back().push_back(i);
    used = place_behind(used, items[i].numel) + items[i].numel;
    open = !items[i].alone && used < bucket_elements;
  }
  return groups;
}

FlatLayout flat_layout(std::span<const FlatItem> items, const FlatGroups& groups, int shards) {
  require<ConfigError>(shards >= 1, "buckets in ", shards, " shards: at least 1");
  FlatLayout layout{.buckets = {}, .numel = 0, .shards = shards};
  for (const std::vector<std::size_t>& group : groups) {
    for (const std::size_t i : group)
      require(i < items.size() && items[i].numel >= 0, "tensor ", i, " of ", items.size());
    const bool whole = std::ranges::any_of(group, [&](std::size_t i) { return items[i].whole; });
    FlatBucket bucket = whole && shards > 1 ? whole_in_shards(items, group, shards) : one_after_another(items, group);
    bucket.begin = layout.numel;
    bucket.numel = rounded_up(bucket.numel, kFlatBlock * shards);
    layout.numel += bucket.numel;
    layout.buckets.push_back(std::move(bucket));
  }
  return layout;
}

FlatLayout flat_layout(std::span<const FlatItem> items, std::int64_t bucket_elements, int shards) {
  return flat_layout(items, groups_by_size(items, bucket_elements), shards);
}

}  // namespace trireme
