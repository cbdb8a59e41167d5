#pragma once
// A group of one: every operation returns its input.
#include <optional>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/comm/group.hpp"

namespace trireme {

class SelfGroup final : public Group {
 public:
  SelfGroup(Membership members, std::shared_ptr<FlightRecorder> recorder, CommOptions options,
            std::optional<at::Device> device = std::nullopt)
      : Group(std::move(members), std::move(recorder), std::move(options)), device_(device) {}
  /// A world of one rank: for a program that was started without a launcher.
  SelfGroup() : SelfGroup(Membership{"solo", 0, {0}}, std::make_shared<FlightRecorder>(0, 1), {}) {}

  std::optional<at::Device> only_device() const override { return device_; }

 protected:
  std::unique_ptr<CommWork> start(const Call& call, std::span<const CallRecord> /*records*/) override {
    if (call.input.defined() && call.output.defined() && call.input.data_ptr() != call.output.data_ptr())
      call.output.view_as(call.input).copy_(call.input);
    return nullptr;
  }
  std::unique_ptr<CommWork> compare(std::span<const CallRecord> /*records*/) override { return nullptr; }
  [[noreturn]] void fail(const CallRecord& record, const std::exception& cause) override {
    throw InternalError(text(record.str(), ": ", cause.what()));
  }

 private:
  const std::optional<at::Device> device_;
};

}  // namespace trireme
