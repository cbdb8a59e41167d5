#include "trireme/comm/backends/local_collective.hpp"

#include "trireme/base/error.hpp"
#include "trireme/comm/rank_order.hpp"

namespace trireme {
namespace {

/// Part i of n of `whole`, split along dim 0; a scalar counts as one row.
at::Tensor part(const at::Tensor& whole, std::size_t i, std::size_t n) {
  const at::Tensor rows = whole.dim() == 0 ? whole.view({1}) : whole;
  const std::int64_t each = rows.size(0) / static_cast<std::int64_t>(n);
  return rows.narrow(0, static_cast<std::int64_t>(i) * each, each);
}

void write(const at::Tensor& to, const at::Tensor& from) { to.view(-1).copy_(from.reshape(-1)); }

std::vector<at::Tensor> inputs_of(const std::vector<Call>& calls) {
  std::vector<at::Tensor> inputs;
  for (const Call& c : calls) inputs.push_back(c.op == Op::all_reduce ? c.output : c.input);
  return inputs;
}

std::int64_t sum_before(const std::vector<std::int64_t>& counts, std::size_t i) {
  std::int64_t sum = 0;
  for (std::size_t k = 0; k < i; ++k) sum += counts[k];
  return sum;
}

void exchange(const std::vector<Call>& calls) {
  const std::size_t n = calls.size();
  for (std::size_t from = 0; from < n; ++from)
    for (std::size_t to = 0; to < n; ++to) {
      const Call &sender = calls[from], &receiver = calls[to];
      if (sender.send_counts.empty()) {
        write(part(receiver.output, from, n), part(sender.input, to, n));
        continue;
      }
      if (sender.send_counts[to] != receiver.recv_counts[from])
        throw CommError(CommError::Kind::hang_or_mismatch,
                        text("all_to_all: rank ", from, " of the group sends ", sender.send_counts[to],
                             " rows to rank ", to, ", which expects ", receiver.recv_counts[from]));
      write(receiver.output.narrow(0, sum_before(receiver.recv_counts, from), receiver.recv_counts[from]),
            sender.input.narrow(0, sum_before(sender.send_counts, to), sender.send_counts[to]));
    }
}

}  // namespace

void do_collective(const std::vector<Call>& calls) {
  const at::NoGradGuard no_grad;
  const std::size_t n = calls.size();
  const Call& first = calls.front();
  switch (first.op) {
    case Op::all_reduce: {
      const at::Tensor result = reduce_in_rank_order(inputs_of(calls), first.reduce);
      for (const Call& c : calls) write(c.output, result);
      break;
    }
    case Op::reduce:
      write(calls[static_cast<std::size_t>(first.peer)].output, reduce_in_rank_order(inputs_of(calls), first.reduce));
      break;
    case Op::reduce_scatter: {
      const at::Tensor result = reduce_in_rank_order(inputs_of(calls), first.reduce);
      for (std::size_t r = 0; r < n; ++r) write(calls[r].output, part(result, r, n));
      break;
    }
    case Op::all_gather:
      for (const Call& c : calls)
        for (std::size_t r = 0; r < n; ++r) write(part(c.output, r, n), calls[r].input);
      break;
    case Op::gather:
      for (std::size_t r = 0; r < n; ++r)
        write(part(calls[static_cast<std::size_t>(first.peer)].output, r, n), calls[r].input);
      break;
    case Op::scatter:
      for (std::size_t r = 0; r < n; ++r)
        write(calls[r].output, part(calls[static_cast<std::size_t>(first.peer)].input, r, n));
      break;
    case Op::broadcast:
      for (std::size_t r = 0; r < n; ++r)
        if (static_cast<int>(r) != first.peer)
          write(calls[r].output, calls[static_cast<std::size_t>(first.peer)].output);
      break;
    case Op::all_to_all: exchange(calls); break;
    case Op::replay:
    case Op::barrier:
    case Op::step_end: break;
    case Op::send:
    case Op::recv:
    case Op::batch: throw InternalError("a message is no collective");
  }
}

}  // namespace trireme
