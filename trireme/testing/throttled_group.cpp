#include "trireme/testing/throttled_group.hpp"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

class LateFlight final : public CommWork {
 public:
  using Clock = std::chrono::steady_clock;
  LateFlight(std::unique_ptr<CommWork> inner, Clock::time_point due) : inner_(std::move(inner)), due_(due) {}

  bool done() override { return Clock::now() >= due_ && (inner_ == nullptr || inner_->done()); }
  void wait() override {
    if (inner_ != nullptr) inner_->wait();
    std::this_thread::sleep_until(due_);
  }

 private:
  const std::unique_ptr<CommWork> inner_;
  const Clock::time_point due_;
};

std::int64_t bytes_of(const at::Tensor& x) { return x.defined() ? static_cast<std::int64_t>(x.nbytes()) : 0; }

/// Bytes received by a rank that sends nothing, or less: if every rank sends, as much is received as sent, except for
/// an uneven all_to_all.
std::int64_t bytes_received(const Call& call, int rank, int size) {
  const std::int64_t out = bytes_of(call.output);
  const bool is_root = call.peer == rank;
  switch (call.op) {
    case Op::broadcast:
    case Op::scatter: return is_root ? 0 : out;
    case Op::reduce: return is_root ? out : 0;
    case Op::gather: return is_root ? out / size * (size - 1) : 0;
    case Op::recv: return out;
    case Op::all_to_all: {
      std::int64_t rows = 0;
      for (const std::int64_t n : call.recv_counts) rows += n;
      return rows == 0 ? 0 : out - out / rows * call.recv_counts[static_cast<std::size_t>(rank)];
    }
    case Op::batch: {
      std::int64_t sum = 0;
      for (const Message& m : call.messages)
        if (m.op == Op::recv) sum += bytes_of(m.tensor);
      return sum;
    }
    case Op::all_reduce:
    case Op::all_gather:
    case Op::reduce_scatter:
    case Op::send:
    case Op::replay:
    case Op::barrier:
    case Op::step_end: break;
  }
  return 0;
}

}  // namespace

ThrottledGroup::ThrottledGroup(Group& inner, Link link)
    : Group(inner.members_, inner.recorder_, inner.options_), inner_(inner), link_(link) {
  require<ConfigError>(link.bytes_per_s > 0 && link.latency_s >= 0, "group ", inner.str(), " behind a link of ",
                       link.bytes_per_s, " bytes/s and ", link.latency_s,
                       " s latency: the bandwidth must be positive, the latency not negative");
  collectives_ = inner.collectives_;
  sent_ = inner.sent_;
  received_ = inner.received_;
}

ThrottledGroup::~ThrottledGroup() {
  inner_.collectives_ = collectives_;
  inner_.sent_ = sent_;
  inner_.received_ = received_;
}

std::unique_ptr<CommWork> ThrottledGroup::start(const Call& call, std::span<const CallRecord> records) {
  std::unique_ptr<CommWork> flight = inner_.start(call, records);
  if (size() == 1) return flight;  // nothing crosses the link
  // Group::run has just counted this call.
  const std::int64_t sent = traffic().bytes - std::exchange(carried_bytes_, traffic().bytes);
  const auto bytes = static_cast<double>(std::max(sent, bytes_received(call, rank(), size())));
  const auto span = [](double seconds) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  };
  link_free_ = std::max(Clock::now(), link_free_) + span(bytes / link_.bytes_per_s);
  return std::make_unique<LateFlight>(std::move(flight), link_free_ + span(link_.latency_s));
}

std::unique_ptr<CommWork> ThrottledGroup::compare(std::span<const CallRecord> records) {
  return inner_.compare(records);
}

void ThrottledGroup::fail(const CallRecord& record, const std::exception& cause) {
  inner_.fail(record, cause);
  std::terminate();  // not reached: g++ 12 does not see that a virtual function is noreturn
}

}  // namespace trireme
