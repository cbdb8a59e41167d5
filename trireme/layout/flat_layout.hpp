#pragma once
// Many tensors in few flat buffers: where each stands, and which part of a buffer is whose.
#include <cstdint>
#include <span>
#include <vector>

#include "trireme/layout/slices.hpp"
#include "trireme/layout/split.hpp"

namespace trireme {

/// A tensor that wants a place. `alone`: in a bucket of its own (an embedding: its gradient is ready last, and large).
struct FlatItem {
  int64_t numel = 0;
  bool alone = false;
};

/// Elements [offset, offset + numel) of a bucket are tensor number `item`.
struct FlatSlot {
  size_t item = 0;
  int64_t offset = 0, numel = 0;
  bool operator==(const FlatSlot&) const = default;
};

/// A slice of the buffer that is communicated at once.
struct FlatBucket {
  int64_t begin = 0;  // in the buffer
  int64_t numel = 0;  // with padding
  std::vector<FlatSlot> slots;
  Range range() const { return {begin, begin + numel}; }
};

/// A piece of a tensor inside a shard: elements `of_item` of tensor `item` stand from `offset` on in the shard.
struct FlatPiece {
  size_t item = 0;
  Range of_item;
  int64_t offset = 0;
  bool operator==(const FlatPiece&) const = default;
};

// Note [Blocks of a flat buffer]: a tensor is seen as blocks of kFlatBlock elements from its own beginning, and no block
// is ever cut: a shard begins at a multiple of kFlatBlock, a tensor of that size or more too, and a smaller one lies
// within one such block of the buffer (at a multiple of kFlatAlign, for vectors). So sums made block by block are the
// same, bit by bit, however tensors share buckets and however many shards there are.
inline constexpr int64_t kFlatAlign = 32, kFlatBlock = 1024;

struct FlatLayout {
  std::vector<FlatBucket> buckets;
  int64_t numel = 0;  // of the buffer
  int shards = 1;

  /// What `rank` keeps of bucket `b`, in elements of the bucket.
  Range shard(size_t b, int rank) const;
  /// The tensors inside it.
  std::vector<FlatPiece> pieces(size_t b, int rank) const;
};

/// Numbers of the tensors that share a bucket, bucket after bucket.
using FlatGroups = std::vector<std::vector<size_t>>;

/// Tensors in the order given, in buckets that are closed as soon as they hold `bucket_elements`.
FlatGroups groups_by_size(std::span<const FlatItem> items, int64_t bucket_elements);

/// Every bucket is cut into `shards` equal parts.
FlatLayout flat_layout(std::span<const FlatItem> items, const FlatGroups& groups, int shards);
FlatLayout flat_layout(std::span<const FlatItem> items, int64_t bucket_elements, int shards);

}  // namespace trireme
