#include "trireme/comm/pending.hpp"

#include <exception>
#include <iostream>
#include <utility>

#include "trireme/comm/group.hpp"

namespace trireme {

Pending::Pending(Group& group, Call call, std::vector<CallRecord> records, at::Tensor result,
                 std::unique_ptr<CommWork> work)
    : group_(&group),
      call_(std::move(call)),
      records_(std::move(records)),
      result_(std::move(result)),
      work_(std::move(work)),
      unwinding_(std::uncaught_exceptions()) {}

Pending::Pending(Pending&& other) noexcept
    : group_(std::exchange(other.group_, nullptr)),
      call_(std::move(other.call_)),
      records_(std::move(other.records_)),
      result_(std::move(other.result_)),
      work_(std::move(other.work_)),
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
  const std::int64_t begin_ns = steady_ns();
  group.finish(call_, records_, work_.get());
  group.recorder().add_wait({begin_ns, steady_ns()});
  return std::move(result_);
}

bool Pending::done() const { return work_ == nullptr || work_->done(); }

}  // namespace trireme
