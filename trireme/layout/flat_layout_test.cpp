#include "trireme/layout/flat_layout.hpp"

#include <map>

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

TEST(FlatLayout, BucketsCloseWhenTheyAreFullAndEmbeddingsStandAlone) {
  const std::vector<FlatItem> items{{100}, {2000}, {5, true}, {1}, {3000}, {7}};
  const FlatLayout layout = flat_layout(items, 2000, 2);
  ASSERT_EQ(layout.buckets.size(), 4u);
  EXPECT_EQ(layout.buckets[0].slots, (std::vector<FlatSlot>{{0, 0, 100}, {1, 1024, 2000}}));
  EXPECT_EQ(layout.buckets[1].slots, (std::vector<FlatSlot>{{2, 0, 5}}));
  EXPECT_EQ(layout.buckets[2].slots, (std::vector<FlatSlot>{{3, 0, 1}, {4, 1024, 3000}}));
  EXPECT_EQ(layout.buckets[3].slots, (std::vector<FlatSlot>{{5, 0, 7}}));
  EXPECT_EQ(layout.buckets[0].numel, 4096);
  EXPECT_EQ(layout.buckets[1].begin, 4096);
  EXPECT_EQ(layout.numel, 4096 + 2048 + 4096 + 2048);
  EXPECT_EQ(layout.shard(0, 1).begin, 2048);
  EXPECT_EQ(layout.pieces(0, 1), (std::vector<FlatPiece>{{1, {1024, 2000}, 0}}));
  EXPECT_TRUE(layout.pieces(1, 1).empty());
  EXPECT_THROW(flat_layout(items, 0, 1), ConfigError);
  EXPECT_TRUE(flat_layout({}, 1, 4).buckets.empty());
}

TEST(FlatLayout, EveryElementIsInOneShard) {
  EXPECT_TRUE(rc::check("pieces of all shards are the tensors", [] {
    const auto sizes = *rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(0, 5000));
    const int shards = *rc::gen::inRange(1, 9);
    std::vector<FlatItem> items;
    for (const std::int64_t size : sizes) items.push_back({size, *rc::gen::inRange(0, 8) == 0});
    const FlatLayout layout = flat_layout(items, *rc::gen::inRange(1, 9000), shards);
    std::vector<std::int64_t> seen(items.size());
    std::int64_t begin = 0;
    for (std::size_t b = 0; b < layout.buckets.size(); ++b) {
      RC_ASSERT(layout.buckets[b].begin == begin);
      begin += layout.buckets[b].numel;
      std::int64_t end = 0;
      for (const FlatSlot& slot : layout.buckets[b].slots) {
        RC_ASSERT(slot.offset >= end && slot.offset % kFlatAlign == 0);
        end = slot.offset + slot.numel;
      }
      RC_ASSERT(end <= layout.buckets[b].numel);
      for (int rank = 0; rank < shards; ++rank) {
        RC_ASSERT(layout.shard(b, rank).size() % kFlatBlock == 0);
        for (const FlatPiece& piece : layout.pieces(b, rank)) {
          RC_ASSERT(piece.of_item.begin % kFlatBlock == 0);    // no block is cut
          RC_ASSERT(piece.of_item.begin == seen[piece.item]);  // in order and without a gap
          seen[piece.item] = piece.of_item.end;
        }
      }
    }
    RC_ASSERT(begin == layout.numel);
    for (std::size_t i = 0; i < items.size(); ++i) RC_ASSERT(seen[i] == items[i].numel);
  }));
}

TEST(FlatLayout, SmallTensorsShareBlocks) {
  const std::vector<FlatItem> items{{500}, {500}, {100}, {1024}, {10}};
  EXPECT_EQ(flat_layout(items, {{0, 1, 2, 3, 4}}, 1).buckets[0].slots,
            (std::vector<FlatSlot>{{0, 0, 500}, {1, 512, 500}, {2, 1024, 100}, {3, 2048, 1024}, {4, 3072, 10}}));
}

TEST(FlatLayout, GroupsAreBucketsAsGiven) {
  const std::vector<FlatItem> items{{500}, {2000}, {100}};
  const FlatLayout layout = flat_layout(items, {{2}, {0, 1}}, 3);
  ASSERT_EQ(layout.buckets.size(), 2u);
  EXPECT_EQ(layout.buckets[0].slots, (std::vector<FlatSlot>{{2, 0, 100}}));
  EXPECT_EQ(layout.buckets[1].slots, (std::vector<FlatSlot>{{0, 0, 500}, {1, 1024, 2000}}));
  EXPECT_EQ(layout.buckets[1].begin, 3072);
  EXPECT_EQ(layout.numel, 6144);
}

TEST(FlatLayout, PlacesDoNotDependOnTheNumberOfShards) {
  const std::vector<FlatItem> items{{100}, {2000}, {5, true}, {1}, {3000}, {7}};
  for (const int shards : {2, 3, 4, 7})
    for (std::size_t b = 0; b < 4; ++b)
      EXPECT_EQ(flat_layout(items, 2000, shards).buckets[b].slots, flat_layout(items, 2000, 1).buckets[b].slots);
}

TEST(FlatLayout, WholeTensorsLieInOneShard) {
  for (const int shards : {1, 2, 3, 5}) {
    std::vector<FlatItem> items;
    for (const std::int64_t numel : {37 * 37, 37, 5, 2000, 100, 4096, 1, 1024, 30})
      items.push_back({.numel = numel, .whole = numel > 1000});
    const FlatLayout layout = flat_layout(items, FlatGroups{{0, 1, 2, 3, 4}, {5, 6}, {7, 8}}, shards);
    for (const FlatBucket& bucket : layout.buckets) {
      EXPECT_EQ(bucket.numel % (kFlatBlock * shards), 0);
      std::int64_t end = 0;
      for (const FlatSlot& slot : bucket.slots) {
        EXPECT_GE(slot.offset, end) << "slots are in the order of their offsets and do not overlap";
        end = slot.offset + slot.numel;
        const std::int64_t size = bucket.numel / shards;
        if (items[slot.item].whole) {
          EXPECT_EQ(slot.offset / size, (end - 1) / size) << "tensor " << slot.item << " of " << shards << " shards";
        }
      }
      EXPECT_LE(end, bucket.numel);
    }
  }
}

}  // namespace
}  // namespace trireme
