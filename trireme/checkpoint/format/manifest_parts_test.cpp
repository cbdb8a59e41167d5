#include "trireme/checkpoint/format/manifest_parts.hpp"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/format/reader.hpp"
#include "trireme/checkpoint/reshape/rank_slices.hpp"
#include "trireme/checkpoint/sources/model_source.hpp"
#include "trireme/config/read/derive.hpp"
#include "trireme/config/schema/presets.hpp"
#include "trireme/describe/parameters.hpp"
#include "trireme/testing/checkpoint_helpers.hpp"
#include "trireme/testing/temp_folder.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::checkpoint {
namespace {

using testing::HasSubstr;

Manifest part_of(const std::string& file, const Box& box) {
  Manifest part;
  part.files.push_back({.name = file, .bytes = 1000, .header_bytes = 100});
  part.tensors.push_back({.name = "w", .kind = kWeight, .shape = {8, 4}, .slices = {{.box = box, .offset = 100}}});
  return part;
}

TEST(PartCollector, KnowsWhichPartsHaveATensor) {
  PartCollector parts;
  parts.add({.name = "a.json"}, part_of("a", {{0, 3}, {0, 4}}));
  parts.add({.name = "b.json"}, part_of("b", {{3, 8}, {0, 4}}));
  Manifest whole;
  std::move(parts).finish(whole);
  ASSERT_EQ(whole.tensors.size(), 1u);
  EXPECT_EQ(whole.tensors[0].parts, (std::vector<Range>{{0, 2}}));
  EXPECT_EQ(whole.parts, (std::vector<std::size_t>{1, 3}));
  EXPECT_EQ(whole.files.at(2).name, "b");
  EXPECT_EQ(files_of_part(whole, 1), (Range{2, 3}));
}

TEST(PartCollector, FindsATensorThatIsNotComplete) {
  PartCollector parts;
  parts.add({.name = "a.json"}, part_of("a", {{0, 3}, {0, 4}}));
  Manifest hole;
  EXPECT_THAT(message_of<InternalError>([&] { std::move(parts).finish(hole); }),
              HasSubstr("w weight: the ranks wrote 48 of 128 bytes"));
}

TEST(CollectParts, NamesTheRankWithoutAPart) {
  const TempFolder folder;
  const SaveTarget target{.folder = folder / "checkpoints", .step = 1, .id = example_id(1)};
  begin_save(files::real_fs(), target);
  write_part(files::real_fs(), target, 0, part_of("a", {{0, 8}, {0, 4}}));
  EXPECT_EQ(count_parts(target), 1);
  Manifest manifest;
  EXPECT_THAT(message_of<CheckpointError>([&] { collect_parts(manifest, target, 2); }),
              testing::AllOf(HasSubstr("rank-00001.json"), HasSubstr("file system that all hosts share")));
}

/// A rank that needs one tensor reads the parts that have it, and opens no other file: the others may even be gone.
TEST(Reader, OpensOnlyWhatIsWanted) {
  const TempFolder folder;
  save_example(files::real_fs(), folder / "checkpoints", {.step = 7, .ranks = 4});
  const std::filesystem::path path = folder / "checkpoints/step-7";
  const Manifest manifest = manifest_in(path);
  EXPECT_TRUE(manifest.tensors[0].slices.empty());
  for (const int rank : {1, 2, 3}) {
    std::filesystem::remove(path / rank_file_name(rank));
    std::filesystem::remove(path / rank_part_name(rank));
  }
  const auto is_norm = [](const std::string& name, const std::string&) { return name == "layers.0.norm.weight"; };
  const Reader reader(path, manifest, is_norm);
  const StoredTensor* norm = find(reader.manifest(), "layers.0.norm.weight", kWeight);
  ASSERT_EQ(norm->slices.size(), 1u);
  std::string bytes(24, '\0');
  reader.read(*norm, {{0, 12}}, std::as_writable_bytes(std::span(bytes)));
  const auto is_qkv = [](const std::string& name, const std::string&) { return name.ends_with("qkv.weight"); };
  EXPECT_THAT(message_of<CheckpointError>([&] { Reader(path, manifest, is_qkv); }),
              HasSubstr("rank-00001.json: is missing"));
  EXPECT_THAT(message_of<CheckpointError>([&] { Reader all(path); }), HasSubstr("rank-00003.safetensors: is missing"));
}

std::string whole_tensor(const Reader& reader) {
  const StoredTensor* qkv = find(reader.manifest(), "layers.0.attention.qkv.weight", kWeight);
  std::string bytes(bytes_of(*qkv), '\0');
  reader.read(*qkv, {{0, 32}, {0, 24}}, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

TEST(Reader, ReadsAManifestThatListsAllSlices) {
  const TempFolder folder;
  save_example(files::real_fs(), folder / "checkpoints", {.step = 7});
  const std::filesystem::path path = folder / "checkpoints/step-7";
  const std::string before = whole_tensor(Reader(path));
  make_version_1(path, [](Manifest&) {});
  const Reader reader(path);
  EXPECT_TRUE(reader.manifest().parts.empty());
  EXPECT_EQ(whole_tensor(reader), before);
}

/// Llama-3-405B on 10,240 ranks: no file comes near kMaxManifestBytes, and the manifest that every rank gets is small.
TEST(ManifestSize, StaysSmallOnTenThousandRanks) {
  config::LoadedConfig loaded;
  loaded.config.model = config::find_preset("llama3-405b").value();
  derive(loaded);
  const ModelConfig& model = loaded.config.model;
  Manifest of_model;
  for (const Parameter& parameter : all_parameters(model))
    for (const char* kind : {"exp_avg", "exp_avg_sq", kWeight})
      of_model.tensors.push_back({.name = parameter.name, .kind = kind, .shape = parameter.spec.shape});
  std::ranges::sort(of_model.tensors, {}, [](const StoredTensor& t) { return std::pair(t.name, t.kind); });
  ParallelismConfig parallelism;
  parallelism.tp = 8;
  parallelism.pp = 16;
  parallelism.dp = 80;
  parallelism.zero = 3;
  parallelism.expert_tp = 8;
  const RankSlices slices(of_model, model, parallelism);
  ASSERT_EQ(slices.world(), 10'240);
  PartCollector parts;
  std::size_t largest_part = 0;
  for (int rank = 0; rank < slices.world(); ++rank) {
    Manifest part;
    part.files.push_back({.name = rank_file_name(rank), .bytes = std::uint64_t{1} << 40, .header_bytes = 100});
    for (const PlannedSlice& slice : slices.of_rank(rank))
      part.tensors.push_back({.name = slice.name,
                              .kind = slice.kind,
                              .dtype = slice.dtype,
                              .shape = slice.shape,
                              .slices = {{.box = slice.box}}});
    if (rank % 64 == 0) largest_part = std::max(largest_part, to_json(part).size());
    parts.add({.name = rank_part_name(rank), .bytes = 1, .header_bytes = 1}, part);
  }
  Manifest manifest;
  std::move(parts).finish(manifest);
  const std::size_t bytes = to_json(manifest).size();
  RecordProperty("manifest_bytes", static_cast<int>(bytes));
  EXPECT_LT(bytes, std::size_t{6} << 20);
  EXPECT_LT(largest_part, std::size_t{1} << 20);
}

}  // namespace
}  // namespace trireme::checkpoint
