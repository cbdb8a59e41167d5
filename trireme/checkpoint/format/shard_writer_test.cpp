#include "trireme/checkpoint/format/shard_writer.hpp"

#include <cerrno>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/files/safetensors.hpp"
#include "trireme/testing/recording_fs.hpp"
#include "trireme/testing/temp_folder.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::checkpoint {
namespace {

using files::SafetensorsDtype;

const std::string kId(32, '7');

SaveTarget target_in(const TempFolder& folder) {
  return {.folder = folder.path() / "checkpoints", .step = 7, .id = kId};
}

/// Bytes that differ everywhere.
std::string numbered_bytes(std::size_t size) {
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 31 + i / 251);
  return bytes;
}

std::span<const std::byte> as_span(const std::string& bytes) { return std::as_bytes(std::span(bytes)); }

TEST(SplitBox, CoversTheBoxInOrder) {
  EXPECT_EQ(split_box({{2, 5}, {0, 4}}, 100), (std::vector<Box>{{{2, 5}, {0, 4}}}));
  EXPECT_EQ(split_box({{2, 5}, {0, 4}}, 8), (std::vector<Box>{{{2, 4}, {0, 4}}, {{4, 5}, {0, 4}}}));
  EXPECT_EQ(split_box({{2, 4}, {0, 4}}, 3),
            (std::vector<Box>{{{2, 3}, {0, 3}}, {{2, 3}, {3, 4}}, {{3, 4}, {0, 3}}, {{3, 4}, {3, 4}}}));
  EXPECT_EQ(split_box({}, 1), (std::vector<Box>{{}})) << "a scalar";
  // Row-major order: the concatenation of the parts is the box itself.
  std::vector<std::int64_t> seen;
  for (const Box& part : split_box({{0, 3}, {0, 5}, {0, 7}}, 11))
    for (std::int64_t i = part[0].begin; i < part[0].end; ++i)
      for (std::int64_t j = part[1].begin; j < part[1].end; ++j)
        for (std::int64_t k = part[2].begin; k < part[2].end; ++k) seen.push_back((i * 5 + j) * 7 + k);
  ASSERT_EQ(seen.size(), 105u);
  for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], static_cast<std::int64_t>(i));
}

/// Larger than a block, and ends within one: a safetensors file with the right hashes.
TEST(ShardWriter, WritesASafetensorsFile) {
  const TempFolder folder;
  BlockPool pool(2 * BlockPool::kBlockBytes);
  const std::vector<PlannedSlice> slices{
      {"a", kWeight, SafetensorsDtype::F32, {4096, 512}, {{1, 1401}, {0, 512}}},
      {"a", "exp_avg", SafetensorsDtype::F32, {4096, 512}, {{0, 1400}, {0, 512}}},
      {"b.c", kWeight, SafetensorsDtype::BF16, {7, 3}, {{0, 7}, {1, 2}}},
      {"rank-3", kRandom, SafetensorsDtype::U8, {5}, {{0, 5}}},
  };
  const std::size_t sizes[] = {1400 * 512 * 4, 1400 * 512 * 4, 14, 5};
  const std::string bytes = numbered_bytes(2 * sizes[0] + 19);
  ShardWriter writer(files::real_fs(), pool, target_in(folder), "rank-00003.safetensors");
  writer.append(as_span(rank_file_header(slices, kId)));
  for (std::size_t i = 0, begin = 0; i < slices.size(); begin += sizes[i++])
    writer.append(slices[i], as_span(bytes).subspan(begin, sizes[i]));
  writer.end();
  const Manifest shard = writer.finish();

  const files::Safetensors file(target_in(folder).temporary() / "rank-00003.safetensors");
  EXPECT_EQ(file.metadata().at("checkpoint"), kId);
  ASSERT_EQ(file.size(), 4u);
  ASSERT_EQ(shard.tensors.size(), 4u);
  std::size_t at = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    const std::string expected = bytes.substr(at, sizes[i]);
    at += sizes[i];
    const auto found = file.bytes(file.entry(i));
    ASSERT_EQ(found.size(), expected.size());
    EXPECT_EQ(std::memcmp(found.data(), expected.data(), expected.size()), 0) << file.entry(i).name;
    const StoredSlice& slice = shard.tensors[i].slices.at(0);
    EXPECT_EQ(slice.hash, files::xxh3(as_span(expected))) << i;
    EXPECT_EQ(slice.offset, shard.files[0].header_bytes + file.entry(i).begin);
  }
  EXPECT_EQ(file.entry(0).name, "a/weight/1:1401,0:512");
  EXPECT_EQ(std::filesystem::file_size(target_in(folder).temporary() / "rank-00003.safetensors"), shard.files[0].bytes);
  EXPECT_LE(pool.most_bytes(), 2 * BlockPool::kBlockBytes) << "more memory than it was given";
}

/// A full disk is reported once, at the end, and nobody waits for memory for ever.
TEST(ShardWriter, ADiskThatIsFullIsReported) {
  const TempFolder folder;
  BlockPool pool(BlockPool::kBlockBytes);
  const std::int64_t rows = 20 * (BlockPool::kBlockBytes / 4096);
  FailingFs fs({.number = 3, .error = ENOSPC, .kind = FsKind::write});
  ShardWriter writer(fs, pool, target_in(folder), "rank-00000.safetensors");
  const std::string row(4096, 'x');
  for (std::int64_t i = 0; i < rows; ++i) writer.append(as_span(row));
  writer.end();
  EXPECT_THAT(message_of<CheckpointError>([&] { writer.finish(); }),
              testing::AllOf(testing::HasSubstr("rank-00000.safetensors"), testing::HasSubstr("No space left")));
}

/// Slices and other bytes in turn, in a folder of the checkpoint, across the ends of blocks: the hash of a file is that
/// of all that is in no slice.
TEST(ShardWriter, WritesWhatIsBetweenSlices) {
  const TempFolder folder;
  BlockPool pool(BlockPool::kBlockBytes);
  ShardWriter writer(files::real_fs(), pool, target_in(folder), "inner/most/file.pt");
  const std::string all = numbered_bytes(3 * BlockPool::kBlockBytes + 100);
  std::string between;
  std::size_t at = 0;
  const auto take = [&](std::size_t size) { return as_span(all).subspan(std::exchange(at, at + size), size); };
  const std::size_t sizes[] = {7, BlockPool::kBlockBytes, 1, BlockPool::kBlockBytes + 50};
  for (std::int64_t i = 0; i < 4; ++i) {
    between += all.substr(at, 10);
    writer.append(take(10));
    const auto size = static_cast<std::int64_t>(sizes[i]);
    writer.append({"a", text("kind-", i), SafetensorsDtype::U8, {size}, {{0, size}}}, take(sizes[i]));
  }
  between += all.substr(at);
  writer.append(take(all.size() - at));
  writer.end();
  const Manifest shard = writer.finish();
  ASSERT_EQ(shard.files.size(), 1u);
  EXPECT_EQ(shard.files[0].name, "inner/most/file.pt");
  EXPECT_EQ(shard.files[0].bytes, all.size());
  EXPECT_EQ(shard.files[0].header_bytes, between.size());
  EXPECT_EQ(shard.files[0].header_hash, files::xxh3(as_span(between)));
  ASSERT_EQ(shard.tensors.size(), 4u);
  for (std::size_t i = 0, begin = 10; i < 4; begin += sizes[i++] + 10) {
    const StoredSlice& slice = shard.tensors[i].slices.at(0);
    EXPECT_EQ(slice.offset, begin);
    EXPECT_EQ(slice.hash, files::xxh3(as_span(all).subspan(begin, sizes[i]))) << i;
  }
}

TEST(ShardWriter, MayBeGivenUp) {
  const TempFolder folder;
  BlockPool pool(BlockPool::kBlockBytes);
  {
    ShardWriter writer(files::real_fs(), pool, target_in(folder), "rank-00000.safetensors");
    writer.append(as_span("not all of it"));
  }
  EXPECT_NE(pool.take(), nullptr) << "its memory is free again";
}

}  // namespace
}  // namespace trireme::checkpoint
