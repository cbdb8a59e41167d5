// Modules on the CPU over a group that takes tensors of a GPU alone, as NCCL does.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/group.hpp"
#include "trireme/comm/self_group.hpp"
#include "trireme/module/data_parallel.hpp"
#include "trireme/module/fully_shard.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Rank 0 of two. Whatever it refuses, it must refuse before it communicates.
class GpuOnlyGroup final : public Group {
 public:
  GpuOnlyGroup() : Group(Membership{"dp", 0, {0, 1}}, std::make_shared<FlightRecorder>(0, 2), {}) {}
  std::optional<at::Device> only_device() const override { return at::Device(at::kCUDA, 0); }

 protected:
  std::unique_ptr<CommWork> start(const Call&, std::span<const CallRecord>) override {
    throw InternalError("a call that the backend would not take");
  }
  std::unique_ptr<CommWork> compare(std::span<const CallRecord>) override { return nullptr; }
  [[noreturn]] void fail(const CallRecord& record, const std::exception& cause) override {
    throw InternalError(text(record.str(), ": ", cause.what()));
  }
};

TEST(GroupDevice, WhereAModuleComputes) {
  const GpuOnlyGroup nccl;
  const SelfGroup gloo;
  const at::Device gpu(at::kCUDA, 0), other(at::kCUDA, 1), cpu(at::kCPU);
  EXPECT_EQ(computing_device(cpu, nccl), gpu);
  EXPECT_EQ(computing_device(at::kMeta, nccl), gpu);
  EXPECT_EQ(computing_device(other, nccl), other) << "where the user has put it";
  EXPECT_EQ(computing_device(cpu, gloo), cpu);
  EXPECT_EQ(computing_device(at::kMeta, gloo), cpu);
  EXPECT_EQ(computing_device(gpu, gloo), gpu);
}

TEST(GroupDevice, DataParallelNamesWhatIsOnTheCpu) {
  GpuOnlyGroup nccl;
  const torch::nn::Linear net(2, 3);
  EXPECT_THAT(message_of<ConfigError>([&] { const auto parallel = data_parallel(net, nccl); }),
              AllOf(HasSubstr("data_parallel: weight is on cpu, and dp{0,1} communicates over NCCL"),
                    HasSubstr("tensors of cuda:0 alone\n  fix: net->to(run->device())")));
}

TEST(GroupDevice, FullyShardRefusesTheCpu) {
  GpuOnlyGroup nccl;
  torch::nn::Linear net(2, 3);
  EXPECT_THAT(message_of<ConfigError>([&] { const auto model = fully_shard(net, nccl, {.device = at::kCPU}); }),
              AllOf(HasSubstr("FullyShardOptions::device is cpu"), HasSubstr("  fix: leave it out")));
}

}  // namespace
}  // namespace trireme
