#include "trireme/comm/backends/fake_world.hpp"

#include <utility>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

CommOptions without_checks() {
  CommOptions options;
  options.check = CheckMode::off;
  return options;
}

class FakeGroup final : public Group {
 public:
  FakeGroup(Membership members, std::shared_ptr<FlightRecorder> recorder, CommOptions options)
      : Group(std::move(members), std::move(recorder), std::move(options)) {}

 protected:
  std::unique_ptr<CommWork> start(const Call& call, std::span<const CallRecord> /*records*/) override {
    for (const Message& message : call.messages)
      if (message.op == Op::recv) message.tensor.zero_();
    if (!call.output.defined() || call.output.numel() == 0) return nullptr;
    const at::Tensor &in = call.input, &out = call.output;
    if (!in.defined()) {
      if (call.op == Op::recv || call.op == Op::scatter) out.zero_();
    } else if (in.numel() == out.numel()) {
      if (in.data_ptr() != out.data_ptr()) out.view({-1}).copy_(in.reshape({-1}));
    } else if (in.numel() * size() == out.numel()) {  // gathered
      out.view({size(), -1}).copy_(in.reshape({1, -1}).expand({size(), in.numel()}));
    } else if (in.numel() == out.numel() * size()) {  // scattered
      out.view({-1}).copy_(in.reshape({size(), -1}).select(0, rank()));
    } else {
      out.zero_();
    }
    return nullptr;
  }
  std::unique_ptr<CommWork> compare(std::span<const CallRecord> /*records*/) override { return nullptr; }
  [[noreturn]] void fail(const CallRecord& record, const std::exception& cause) override {
    throw InternalError(text(record.str(), ": ", cause.what()));
  }
};

}  // namespace

FakeWorld::FakeWorld(int rank, int size)
    : World(rank, size, without_checks(), std::make_shared<FlightRecorder>(rank, size)) {}

std::unique_ptr<Group> FakeWorld::connect(Membership members) {
  return std::make_unique<FakeGroup>(std::move(members), shared_recorder(), options());
}

}  // namespace trireme
