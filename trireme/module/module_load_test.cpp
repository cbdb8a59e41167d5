#include "trireme/module/module_load.hpp"

#include <filesystem>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/module/agreed_failure.hpp"
#include "trireme/testing/temp_folder.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Sharded over two ranks as one unit, each of them keeps one parameter.
struct TwoVectorsImpl : torch::nn::Module {
  explicit TwoVectorsImpl(double value)
      : first(register_parameter("first", at::full({16}, value))),
        second(register_parameter("second", at::full({16}, 2 * value))) {}
  at::Tensor forward(const at::Tensor& x) { return x * first + second; }
  at::Tensor first, second;
};

/// What only another rank needs may be missing, or on a disk that is slow: it is not opened.
TEST(ModuleLoad, ARankOpensWhatItKeeps) {
  const TempFolder folder(memory_folder());
  run_ranks(2, [&](Group& group) {
    auto saved = fully_shard(std::make_shared<TwoVectorsImpl>(3), group);
    save_checkpoint(folder / "c", 1, saved);
    const std::filesystem::path path = folder / "c" / "step-1";
    std::string manifest;
    if (group.rank() == 0) {
      const OpenedCheckpoint opened = open_newest(folder / "c");
      EXPECT_EQ(opened.path, path);
      manifest = to_json(opened.reader->manifest());
      for (const char* name : {"rank-00001.safetensors", "rank-00001.json"}) std::filesystem::remove(path / name);
    }
    manifest = broadcast_text(group, at::kCPU, manifest);

    auto other = fully_shard(std::make_shared<TwoVectorsImpl>(0), group);
    const ModuleParts parts = parts_of(other);
    ASSERT_EQ(parts.kept[0].parts.size(), 1U);
    EXPECT_EQ(parts.kept[0].parts[0].param->name, group.rank() == 0 ? "first" : "second");
    const auto open = [&] { return open_for_rank(path, manifest, parts, {}, group.rank()); };
    if (group.rank() == 0) {
      const at::NoGradGuard no_grad;
      ModuleLoad load(open(), parts, {}, 0, 2);
      EXPECT_EQ(load.step(), 1);
      load.apply();
      EXPECT_TRUE(other.shards()[0].narrow(0, 0, 16).allclose(at::full({16}, 3.0)));
    } else {
      EXPECT_THAT(message_of<CheckpointError>(open), HasSubstr("rank-00001"));
    }
    // The whole of it: one rank sees what is missing, all throw.
    EXPECT_THAT(message_of<CheckpointError>([&] { load_checkpoint(path, other); }),
                AllOf(HasSubstr("rank 0: "), HasSubstr("rank-00001")));
  });
}

/// A checkpoint that is whole, and is not that of the module: the same error on all ranks, whoever finds it.
TEST(ModuleLoad, AllRanksThrowAlike) {
  const TempFolder folder(memory_folder());
  run_ranks(3, [&](Group& group) {
    auto saved = fully_shard(std::make_shared<TwoVectorsImpl>(3), group);
    save_checkpoint(folder / "c", 1, saved);
    torch::nn::Module other;
    const at::Tensor third = other.register_parameter("third", at::ones({2}));
    EXPECT_THAT(message_of<CheckpointError>([&] { load_checkpoint(folder / "c", {other, group}); }),
                AllOf(HasSubstr("rank 0: "), HasSubstr("third (weight) is not in the checkpoint")));
    EXPECT_TRUE(third.equal(at::ones({2})));
  });
}

}  // namespace
}  // namespace trireme
