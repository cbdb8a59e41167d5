#include "trireme/comm/backends/c10d_group.hpp"

#include <algorithm>
#include <cstring>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "trireme/base/copy_bytes.hpp"
#include "trireme/comm/calls/mismatch.hpp"
#include "trireme/comm/rank_order.hpp"

namespace trireme {
namespace {

using Tensors = std::vector<at::Tensor>;

c10d::ReduceOp reduce_op(Reduce reduce) {
  switch (reduce) {
    case Reduce::max: return c10d::ReduceOp::MAX;
    case Reduce::min: return c10d::ReduceOp::MIN;
    case Reduce::sum:
    case Reduce::avg: break;  // Group::finish divides
  }
  return c10d::ReduceOp::SUM;
}

/// `whole` as n views along dim 0.
Tensors parts_of(const at::Tensor& whole, int n) {
  const at::Tensor rows = whole.dim() == 0 ? whole.view({1}) : whole;
  const std::int64_t each = rows.size(0) / n;
  Tensors parts;
  for (int i = 0; i < n; ++i) parts.push_back(rows.narrow(0, i * each, each));
  return parts;
}

/// Views a scalar as one row: c10d needs a dim for the parts' sizes.
at::Tensor rows_of(const at::Tensor& x) { return x.dim() == 0 ? x.view({1}) : x; }

bool rounds(const Call& call) {
  const at::Tensor& x = call.op == Op::all_reduce ? call.output : call.input;
  return (call.reduce == Reduce::sum || call.reduce == Reduce::avg) && x.is_floating_point();
}

at::Tensor bytes_of(std::span<const CallRecord> records) {
  const at::Tensor bytes = at::empty({static_cast<std::int64_t>(records.size_bytes())}, at::kByte);
  copy_bytes(bytes.mutable_data_ptr(), records.data(), records.size_bytes());
  return bytes;
}

CallRecord record_in(const at::Tensor& bytes, std::int64_t i) {
  CallRecord record;
  std::memcpy(&record, static_cast<const char*>(bytes.const_data_ptr()) + i * static_cast<std::int64_t>(sizeof record),
              sizeof record);
  return record;
}

/// Strict mode: the records of messages travel as messages of their own, so that no rank waits before it has started
/// all of its own. The receiver compares before it uses the data.
class MessageCheck final : public CommWork {
 public:
  MessageCheck(std::shared_ptr<const Membership> members, std::chrono::milliseconds limit)
      : members_(std::move(members)), limit_(limit) {}
  void add(const CallRecord& record, c10::intrusive_ptr<c10d::Work> work, at::Tensor bytes) {
    parts_.push_back({record, std::move(work), std::move(bytes)});
  }
  bool done() override { return false; }  // c10d's messages over Gloo cannot be polled
  void wait() override {
    // What was received first: a sender whose peer has failed would wait for the timeout.
    for (const Part& part : parts_) {
      if (part.record.op != Op::recv) continue;
      part.work->wait(limit_);
      const CallRecord theirs = record_in(part.bytes, 0);
      if (!same_message(theirs, part.record))
        throw mismatch_error(members_->str(), world_rank(part.record.peer), theirs, world_rank(members_->rank),
                             part.record);
    }
    for (const Part& part : parts_)
      if (part.record.op == Op::send) part.work->wait(limit_);
  }

 private:
  struct Part {
    CallRecord record;
    c10::intrusive_ptr<c10d::Work> work;
    at::Tensor bytes;
  };
  int world_rank(int r) const { return members_->world_ranks[static_cast<std::size_t>(r)]; }

  const std::shared_ptr<const Membership> members_;
  const std::chrono::milliseconds limit_;
  std::vector<Part> parts_;
};

}  // namespace

std::chrono::milliseconds in_milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

bool C10dWork::done() {
  return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->isCompleted(); });
}

void C10dWork::wait() {
  for (const auto& work : works_) work->wait(limit_);
}

C10dGroup::C10dGroup(Membership members, std::shared_ptr<FlightRecorder> recorder, CommOptions options,
                     c10::intrusive_ptr<c10d::Backend> backend, c10::intrusive_ptr<c10d::Backend> checks,
                     std::shared_ptr<Watchdog> watchdog)
    : Group(members, std::move(recorder), std::move(options)),
      membership_(std::make_shared<const Membership>(std::move(members))),
      backend_(std::move(backend)),
      checks_(std::move(checks)),
      watchdog_(std::move(watchdog)),
      time_limit_(in_milliseconds(Group::options().timeout_s)) {
  watchdog_->add_group(membership_);
}

void C10dGroup::set_time_limit(double seconds) {
  time_limit_ = in_milliseconds(seconds);
  if (checks_ != nullptr) checks_->setTimeout(time_limit_);
}

C10dGroup::~C10dGroup() = default;

std::unique_ptr<CommWork> C10dGroup::start(const Call& call, std::span<const CallRecord> records) {
  if (call.op == Op::replay) return start_replay(records.front());
  if (call.op == Op::batch) return start_messages(call.messages);
  if (call.op == Op::send) return start_messages({Message::send(call.input, call.peer)});
  if (call.op == Op::recv) return start_messages({Message::recv(call.output, call.peer)});
  const bool reduces = call.op == Op::all_reduce || call.op == Op::reduce_scatter || call.op == Op::reduce;
  if (reduces && options().deterministic && rounds(call)) {
    sum_in_rank_order(call, records.front());
    return nullptr;
  }
  return flight_of(start_work(call), records.front());
}

std::unique_ptr<CommWork> C10dGroup::flight_of(c10::intrusive_ptr<c10d::Work> work, const CallRecord& /*record*/) {
  return std::make_unique<C10dWork>(std::vector{std::move(work)});
}

c10::intrusive_ptr<c10d::Work> C10dGroup::start_work(const Call& call) {
  // c10d takes its tensors by non-const reference, though it does not modify them.
  at::Tensor in = call.input, out = call.output;
  switch (call.op) {
    case Op::all_reduce: {
      c10d::AllreduceOptions o;
      o.reduceOp = reduce_op(call.reduce);
      Tensors tensors{out};
      return backend_->allreduce(tensors, o);
    }
    case Op::reduce: {
      c10d::ReduceOptions o;
      o.reduceOp = reduce_op(call.reduce);
      o.rootRank = call.peer;
      Tensors tensors{out};
      return backend_->reduce(tensors, o);
    }
    case Op::all_gather: {
      in = rows_of(in);
      return backend_->_allgather_base(out, in);
    }
    case Op::reduce_scatter: {
      c10d::ReduceScatterOptions o;
      o.reduceOp = reduce_op(call.reduce);
      out = rows_of(out);
      return backend_->_reduce_scatter_base(out, in, o);
    }
    case Op::all_to_all: {
      std::vector<std::int64_t> recv = call.recv_counts, send = call.send_counts;
      return backend_->alltoall_base(out, in, recv, send);
    }
    case Op::broadcast: {
      c10d::BroadcastOptions o;
      o.rootRank = call.peer;
      Tensors tensors{out};
      return backend_->broadcast(tensors, o);
    }
    case Op::gather: {
      c10d::GatherOptions o;
      o.rootRank = call.peer;
      Tensors inputs{rows_of(in)};
      std::vector<Tensors> outputs;
      if (out.defined()) outputs.push_back(parts_of(out, size()));
      return backend_->gather(outputs, inputs, o);
    }
    case Op::scatter: {
      c10d::ScatterOptions o;
      o.rootRank = call.peer;
      Tensors outputs{rows_of(out)};
      std::vector<Tensors> inputs;
      if (in.defined()) inputs.push_back(parts_of(in, size()));
      return backend_->scatter(outputs, inputs, o);
    }
    case Op::barrier: return backend_->barrier();
    // reduce, messages and the end of a step: Group makes them of the others, or handles them itself.
    default: throw InternalError(text(trireme::name(call.op), " is not a collective of a backend"));
  }
}

/// Every rank collects part `rank` of all ranks, adds them in rank order, and distributes the sum: the additions are
/// those of a thread group and of one rank that accumulates, independent of the backend's algorithm.
void C10dGroup::sum_in_rank_order(const Call& call, const CallRecord& record) {
  const int n = size();
  const at::Tensor source = call.op == Op::reduce_scatter ? call.input : call.output;
  const std::int64_t each = (source.numel() + n - 1) / n;
  if (each == 0) return;
  at::Tensor padded = source.reshape(-1);
  if (each * n != source.numel()) {
    padded = at::zeros({each * n}, source.options());
    padded.narrow(0, 0, source.numel()).copy_(source.reshape(-1));
  }
  at::Tensor mine = at::empty_like(padded);
  std::vector<std::int64_t> even;
  flight_of(backend_->alltoall_base(mine, padded, even, even), record)->wait();
  at::Tensor sum = reduce_in_rank_order(parts_of(mine, n), call.reduce);
  if (call.op == Op::reduce_scatter) {
    call.output.view(-1).copy_(sum);
    return;
  }
  flight_of(backend_->_allgather_base(mine, sum), record)->wait();
  call.output.view(-1).copy_(mine.narrow(0, 0, source.numel()));
}

std::unique_ptr<CommWork> C10dGroup::compare(std::span<const CallRecord> records) {
  if (records.empty()) return nullptr;
  const auto world_rank = [this](int r) { return world_ranks()[static_cast<std::size_t>(r)]; };
  if (!records.front().pairwise()) {
    at::Tensor mine = bytes_of(records), all = at::empty({mine.numel() * size()}, at::kByte);
    checks_->_allgather_base(all, mine)->wait();
    for (int r = 1; r < size(); ++r)
      if (!same_call(record_in(all, 0), record_in(all, r)))
        throw mismatch_error(str(), world_rank(0), record_in(all, 0), world_rank(r), record_in(all, r));
    return nullptr;
  }
  auto check = std::make_unique<MessageCheck>(membership_, time_limit_);
  for (const CallRecord& r : records) {
    Tensors bytes{r.op == Op::send ? bytes_of({&r, 1}) : at::empty({static_cast<std::int64_t>(sizeof r)}, at::kByte)};
    auto work = r.op == Op::send ? checks_->send(bytes, r.peer, 0) : checks_->recv(bytes, r.peer, 0);
    check->add(r, std::move(work), bytes[0]);
  }
  return check;
}

void C10dGroup::fail(const CallRecord& record, const std::exception& cause) {
  throw watchdog_->explain(*membership_, record, cause.what());
}

}  // namespace trireme
