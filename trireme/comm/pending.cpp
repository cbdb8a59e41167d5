#include "trireme/comm/pending.hpp"

#include <exception>
#include <iostream>
#include <utility>

#include "trireme/comm/group.hpp"
#include "trireme/comm/wait_clock.hpp"

namespace trireme {

double& seconds_waited() {
  thread_local double seconds = 0;
  return seconds;
}

Pending::Pending(Group& group, Call call, std::vector<CallRecord> records, at::Tensor result,
                 std::unique_ptr<CommWork> flight)
    : group_(&group),
      call_(std::move(call)),
      records_(std::move(records)),
      result_(std::move(result)),
      flight_(std::move(flight)),
      unwinding_(std::uncaught_exceptions()) {}

Pending::Pending(Pending&& other) noexcept
    : group_(std::exchange(other.group_, nullptr)),
      call_(std::move(other.call_)),
      records_(std::move(other.records_)),
      result_(std::move(other.result_)),
      flight_(std::move(other.flight_)),
      unwinding_(other.unwinding_) {}

Pending::~Pending() {
  if (group_ == nullptr || std::uncaught_exceptions() > unwinding_) return;
  const std::string what = records_.empty() ? "an empty batch" : records_.front().str();
  std::cerr << "error: " << what << " was started but never waited for\n"
            << "  fix: call wait() on the Pending that the operation returned\n";
  std::terminate();
}

at::Tensor Pending::wait() && {
  Group& group = *std::exchange(group_, nullptr);
  const auto begin = std::chrono::steady_clock::now();
  group.finish(call_, records_, flight_.get());
  seconds_waited() += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return std::move(result_);
}

bool Pending::done() const { return flight_ == nullptr || flight_->done(); }

}  // namespace trireme
