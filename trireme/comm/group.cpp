#include "trireme/comm/group.hpp"

#include <algorithm>
#include <utility>

#include <ATen/ops/empty.h>

#include "trireme/base/error.hpp"
#include "trireme/base/fnv.hpp"

namespace trireme {
namespace {

/// The check of messages in strict mode, then the messages.
class CheckedWork final : public CommWork {
 public:
  CheckedWork(std::unique_ptr<CommWork> check, std::unique_ptr<CommWork> work)
      : check_(std::move(check)), work_(std::move(work)) {}
  bool done() override { return check_->done() && (work_ == nullptr || work_->done()); }
  void wait() override {
    check_->wait();
    if (work_ != nullptr) work_->wait();
  }

 private:
  const std::unique_ptr<CommWork> check_, work_;
};

std::int64_t bytes_of(const at::Tensor& x) { return x.defined() ? static_cast<std::int64_t>(x.nbytes()) : 0; }

/// x with `rows` rows; a scalar counts as one row.
at::Tensor like_with_rows(const at::Tensor& x, std::int64_t rows) {
  at::DimVector sizes{rows};
  for (std::int64_t d = 1; d < x.dim(); ++d) sizes.push_back(x.size(d));
  return at::empty(sizes, x.options().requires_grad(false));
}

std::int64_t rows_of(const at::Tensor& x) { return x.dim() == 0 ? 1 : x.size(0); }

std::int64_t sum_of(const std::vector<std::int64_t>& counts) {
  std::int64_t sum = 0;
  for (std::int64_t n : counts) sum += n;
  return sum;
}

}  // namespace

std::string Membership::str() const {
  constexpr std::size_t kAll = 8;
  std::string words = name + "{";
  for (std::size_t i = 0; i < std::min(kAll, world_ranks.size()); ++i) words += text(i == 0 ? "" : ",", world_ranks[i]);
  if (world_ranks.size() > kAll) words += text(",...,", world_ranks.back(), ": ", world_ranks.size(), " ranks");
  return words + "}";
}

Group::Group(Membership members, std::shared_ptr<FlightRecorder> recorder, CommOptions options)
    : members_(std::move(members)),
      text_(members_.str()),
      text_hash_(fnv1a(text_)),
      recorder_(std::move(recorder)),
      options_(std::move(options)),
      limit_s_(options_.timeout_s),
      sent_(members_.world_ranks.size()),
      received_(members_.world_ranks.size()) {
  require(size() >= 1 && rank() >= 0 && rank() < size(), "group ", text_, ": rank ", rank(), " is not one of its ",
          size());
}

Pending Group::all_reduce(const at::Tensor& x, Reduce reduce) {
  Call call{.op = Op::all_reduce, .reduce = reduce, .output = x};
  check_call(call, rank(), size(), text_);  // before the copy, which would hide errors in x
  if (size() > 1) call.output = x.detach().clone();
  const at::Tensor out = call.output;
  return run(std::move(call), out);
}

Pending Group::all_reduce_(at::Tensor x, Reduce reduce) {
  return run({.op = Op::all_reduce, .reduce = reduce, .output = x}, x);
}

Pending Group::all_gather(const at::Tensor& x) {
  return all_gather_into(x.defined() && size() > 1 ? like_with_rows(x, rows_of(x) * size()) : x, x);
}

Pending Group::all_gather_into(at::Tensor out, const at::Tensor& x) {
  return run({.op = Op::all_gather, .input = x, .output = out}, out);
}

Pending Group::reduce_scatter(const at::Tensor& x, Reduce reduce) {
  return reduce_scatter_into(x.defined() && size() > 1 ? like_with_rows(x, rows_of(x) / size()) : x, x, reduce);
}

Pending Group::reduce_scatter_into(at::Tensor out, const at::Tensor& x, Reduce reduce) {
  return run({.op = Op::reduce_scatter, .reduce = reduce, .input = x, .output = out}, out);
}

Pending Group::all_to_all(const at::Tensor& x) {
  return all_to_all_into(x.defined() && size() > 1 ? like_with_rows(x, rows_of(x)) : x, x);
}

Pending Group::all_to_all(const at::Tensor& x, std::vector<std::int64_t> send_counts,
                          std::vector<std::int64_t> recv_counts) {
  const std::int64_t rows = sum_of(recv_counts);
  return all_to_all_into(x.defined() && size() > 1 && rows >= 0 ? like_with_rows(x, rows) : x, x,
                         std::move(send_counts), std::move(recv_counts));
}

Pending Group::all_to_all_into(at::Tensor out, const at::Tensor& x, std::vector<std::int64_t> send_counts,
                               std::vector<std::int64_t> recv_counts) {
  return run({.op = Op::all_to_all,
              .input = x,
              .output = out,
              .send_counts = std::move(send_counts),
              .recv_counts = std::move(recv_counts)},
             out);
}

Pending Group::broadcast_(at::Tensor x, int root) { return run({.op = Op::broadcast, .peer = root, .output = x}, x); }

Pending Group::reduce(const at::Tensor& x, int root, Reduce reduce) {
  // Backends use the buffer of every rank as scratch space.
  at::Tensor out = x.defined() && size() > 1 ? x.detach().clone() : x;
  return run({.op = Op::reduce, .reduce = reduce, .peer = root, .input = x, .output = out},
             rank() == root ? out : at::Tensor());
}

Pending Group::gather(const at::Tensor& x, int root) {
  at::Tensor out;
  if (rank() == root) out = x.defined() && size() > 1 ? like_with_rows(x, rows_of(x) * size()) : x;
  return run({.op = Op::gather, .peer = root, .input = x, .output = out}, out);
}

Pending Group::scatter_into(at::Tensor out, const at::Tensor& x, int root) {
  return run({.op = Op::scatter, .peer = root, .input = x, .output = out}, out);
}

Pending Group::send(const at::Tensor& x, int to) { return run({.op = Op::send, .peer = to, .input = x}, x); }
Pending Group::recv_(at::Tensor out, int from) { return run({.op = Op::recv, .peer = from, .output = out}, out); }
Pending Group::batch(std::vector<Message> messages) {
  return run({.op = Op::batch, .messages = std::move(messages)}, {});
}
Pending Group::barrier() { return run({.op = Op::barrier}, {}); }
Pending Group::replay() { return run({.op = Op::replay}, {}); }

Traffic Group::traffic() const {
  Traffic sum;
  for (const Traffic& t : traffic_) sum.calls += t.calls, sum.bytes += t.bytes;
  return sum;
}

/// The record of one call or message: assigns its sequence number and adds it to the checksum (Note [Checksum]).
CallRecord Group::begin(const CallRecord& shape) {
  CallRecord record = shape;
  text_.copy(record.group, sizeof record.group - 1);
  if (record.pairwise()) {
    const auto peer = static_cast<std::size_t>(record.peer);
    const bool sends = record.op == Op::send;
    record.seq = sends ? ++sent_[peer] : ++received_[peer];
    const std::int64_t elements = record.elements();
    const std::uint64_t hash =
        sends ? hash_of_message(text_hash_, rank(), record.peer, record.seq, record.dtype, elements)
              : hash_of_message(text_hash_, record.peer, rank(), record.seq, record.dtype, elements);
    recorder_->add_to_checksum(sends ? hash : ~hash + 1);
  } else {
    record.seq = ++collectives_;
  }
  const CallLimit limit = recorder_->limit().value_or(CallLimit{.seconds = options_.timeout_s});
  record.limit_s = limit.seconds;
  record.awaited = limit.awaited;
  recorder_->begin(record, rank(), size(), options_.check);
  return record;
}

void Group::use_limit_of(const CallRecord& record) {
  // With an awaited rank the watchdog decides.
  const double seconds = record.awaited >= 0 ? kNoTimeout : record.limit_s;
  if (seconds != std::exchange(limit_s_, seconds)) set_time_limit(seconds);
}

std::vector<CallRecord> Group::begin_all(const Call& call) {
  if (call.op != Op::batch) return {begin(record_of(call))};
  std::vector<CallRecord> records;
  for (const Message& m : call.messages) {
    const bool sends = m.op == Op::send;
    const Call one{.op = m.op,
                   .peer = m.peer,
                   .input = sends ? m.tensor : at::Tensor(),
                   .output = sends ? at::Tensor() : m.tensor};
    records.push_back(begin(record_of(one)));
  }
  return records;
}

namespace {

/// The sum of a mean in float16 may overflow where the mean does not: each rank divides first.
bool divides_first(const Call& call) {
  const at::Tensor& any = call.input.defined() ? call.input : call.output;
  return call.reduce == Reduce::avg && any.defined() && any.scalar_type() == at::kHalf;
}

}  // namespace

Pending Group::run(Call call, at::Tensor result) {
  check_call(call, rank(), size(), text_);
  if (size() > 1 && divides_first(call)) {
    const at::NoGradGuard no_grad;
    if (call.op != Op::reduce_scatter) call.output.div_(size());  // which holds what this rank adds
    if (call.input.defined()) call.input = call.input.div(size());
  }
  std::vector<CallRecord> records = begin_all(call);
  // The parts of an uneven all_to_all must match pairwise.
  for (int peer = 0; peer < static_cast<int>(call.send_counts.size()); ++peer) {
    const auto i = static_cast<std::size_t>(peer);
    recorder_->add_to_checksum(hash_of_message(text_hash_, rank(), peer, ~collectives_, 0, call.send_counts[i]));
    recorder_->add_to_checksum(~hash_of_message(text_hash_, peer, rank(), ~collectives_, 0, call.recv_counts[i]) + 1);
  }
  count(call);
  CallRecord first = records.empty() ? CallRecord{} : records.front();
  std::unique_ptr<CommWork> work;
  try {
    if (!records.empty()) use_limit_of(first);
    std::unique_ptr<CommWork> check;
    if (options_.check == CheckMode::strict && size() > 1) check = compare(records);
    work = start(call, records);
    if (check != nullptr) work = std::make_unique<CheckedWork>(std::move(check), std::move(work));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    fail(first, e);
  }
  return Pending(*this, std::move(call), std::move(records), std::move(result), std::move(work));
}

void Group::finish(Call& call, std::span<const CallRecord> records, CommWork* work) {
  if (work != nullptr) {
    try {
      work->wait();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& e) {
      fail(records.front(), e);
    }
  }
  if (call.reduce == Reduce::avg && size() > 1 && call.output.defined() && !divides_first(call))
    call.output.div_(size());
  for (const CallRecord& record : records) recorder_->finish(record);
}

void Group::end_step() {
  if (size() == 1) return;
  const std::vector<CallRecord> records{begin(CallRecord{.op = Op::step_end})};
  try {
    use_limit_of(records.front());
    compare(records);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    fail(records.front(), e);
  }
  recorder_->finish(records.front());
}

void Group::count(const Call& call) {
  const std::int64_t n = size(), in = bytes_of(call.input), out = bytes_of(call.output);
  std::int64_t sent = 0;
  switch (call.op) {
    case Op::all_reduce: sent = 2 * out * (n - 1) / n; break;
    case Op::all_gather: sent = in * (n - 1); break;
    case Op::reduce_scatter: sent = in * (n - 1) / n; break;
    case Op::all_to_all:
      sent = in * (n - 1) / n;
      if (const std::int64_t rows = sum_of(call.send_counts); rows > 0)
        sent = in - in / rows * call.send_counts[static_cast<std::size_t>(rank())];
      break;
    case Op::broadcast: sent = call.peer == rank() && n > 1 ? out : 0; break;
    case Op::reduce:
    case Op::gather: sent = call.peer == rank() ? 0 : in; break;
    case Op::scatter: sent = call.peer == rank() ? in * (n - 1) / n : 0; break;
    case Op::send: sent = in; break;
    case Op::batch:
      for (const Message& m : call.messages) {
        Traffic& kind = traffic_[static_cast<std::size_t>(m.op)];
        ++kind.calls;
        if (m.op == Op::send) kind.bytes += bytes_of(m.tensor);
      }
      return;
    case Op::recv:
    case Op::replay:
    case Op::barrier:
    case Op::step_end: break;
  }
  Traffic& kind = traffic_[static_cast<std::size_t>(call.op)];
  ++kind.calls;
  kind.bytes += sent;
}

}  // namespace trireme
