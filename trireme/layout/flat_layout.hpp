#pragma once
// Packs many tensors into a few flat buckets: the offset of each tensor, and which part of a bucket each rank owns.
#include <cstdint>
#include <span>
#include <vector>

#include "trireme/layout/slices.hpp"
#include "trireme/layout/split.hpp"

namespace trireme {

/// A tensor to place.
///   alone   it gets its own bucket (an embedding: its gradient is ready last, and is large)
///   whole   it lies within one shard (for an optimizer that works on matrices); padding makes the shards equal
struct FlatItem {
  std::int64_t numel = 0;
  bool alone = false;
  bool whole = false;
};

/// Elements [offset, offset + numel) of a bucket belong to tensor `item`.
struct FlatSlot {
  std::size_t item = 0;
  std::int64_t offset = 0, numel = 0;
  bool operator==(const FlatSlot&) const = default;
};

/// A contiguous part of the buffer that is communicated in one collective.
struct FlatBucket {
  std::int64_t begin = 0;  // offset in the buffer
  std::int64_t numel = 0;  // including padding
  std::vector<FlatSlot> slots;
  Range range() const { return {begin, begin + numel}; }
};

/// Part of a tensor inside a shard: elements `of_item` of tensor `item`, starting at `offset` in the shard.
struct FlatPiece {
  std::size_t item = 0;
  Range of_item;
  std::int64_t offset = 0;
  bool operator==(const FlatPiece&) const = default;
};

// Note [Blocks of a flat buffer]: a tensor consists of blocks of kFlatBlock elements, counted from its first element,
// and no block is ever split: a shard begins at a multiple of kFlatBlock, so does a tensor of at least that size, and a
// smaller tensor lies within one such block of the buffer (at a multiple of kFlatAlign, for vectorized access). So
// block-wise sums are bitwise the same for any bucketing and any number of shards.
inline constexpr std::int64_t kFlatAlign = 32, kFlatBlock = 1024;

struct FlatLayout {
  std::vector<FlatBucket> buckets;
  std::int64_t numel = 0;  // elements in the buffer
  int shards = 1;

  /// The range of bucket `b` that `rank` owns, relative to the bucket.
  Range shard(std::size_t b, int rank) const;
  /// The parts of tensors inside that range.
  std::vector<FlatPiece> pieces(std::size_t b, int rank) const;
};

/// For each bucket, the indices of its tensors.
using FlatGroups = std::vector<std::vector<std::size_t>>;

/// Fills buckets in the given order; a bucket is closed once it has at least `bucket_elements`.
FlatGroups groups_by_size(std::span<const FlatItem> items, std::int64_t bucket_elements);

/// Every bucket is split into `shards` equal parts. Slots are in the order of their offsets.
FlatLayout flat_layout(std::span<const FlatItem> items, const FlatGroups& groups, int shards);
FlatLayout flat_layout(std::span<const FlatItem> items, std::int64_t bucket_elements, int shards);

}  // namespace trireme
