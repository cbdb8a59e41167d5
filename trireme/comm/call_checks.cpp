// Validates a call before any data is transferred: a backend given a wrong tensor would corrupt memory.
#include <algorithm>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/comm/group.hpp"

namespace trireme {
namespace {

struct Site {
  const Call& call;
  int rank, size;
  const std::string& where;
};

template <class... Parts>
void must(bool ok, const Site& at, const Parts&... parts) {
  if (!ok) [[unlikely]]
    throw InternalError(text(name(at.call.op), " on group ", at.where, ", rank ", at.rank, ": ", parts...));
}

bool known_dtype(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
    case at::kDouble:
    case at::kBFloat16:
    case at::kHalf:
    case at::kLong:
    case at::kInt:
    case at::kByte:
    case at::kBool: return true;
    default: return false;
  }
}

void check_tensor(const Site& at, const at::Tensor& x, const char* role) {
  must(x.defined(), at, role, " is undefined");
  must(x.layout() == at::kStrided && (x.is_cpu() || x.is_cuda()), at, role, " is on ", x.device(), ", layout ",
       x.layout(), ": only dense tensors on cpu or cuda are supported");
  must(x.is_contiguous(), at, role, " is not contiguous (sizes ", x.sizes(), ", strides ", x.strides(),
       ")\n  fix: pass x.contiguous(), or a buffer that is");
  must(known_dtype(x.scalar_type()), at, role, " has dtype ", c10::toString(x.scalar_type()),
       ": f32, f64, bf16, f16, i64, i32, u8 and bool are supported\n  fix: view it as bytes, x.view(torch::kByte)");
  must(!(x.requires_grad() && at::GradMode::is_enabled()), at, role,
       " carries a gradient, and a plain collective would cut the graph\n"
       "  fix: use the operation of trireme::differentiable, or pass x.detach()");
}

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined() || a.nbytes() == 0 || b.nbytes() == 0 || a.device() != b.device()) return false;
  const auto* from_a = static_cast<const char*>(a.const_data_ptr());
  const auto* from_b = static_cast<const char*>(b.const_data_ptr());
  return from_a < from_b + b.nbytes() && from_b < from_a + a.nbytes();
}

void check_reduce(const Site& at, const at::Tensor& x) {
  if (at.call.op != Op::all_reduce && at.call.op != Op::reduce_scatter && at.call.op != Op::reduce) return;
  const bool sums = at.call.reduce == Reduce::sum || at.call.reduce == Reduce::avg;
  must(!(sums && x.scalar_type() == at::kBool), at, name(at.call.reduce), " of bool is not defined\n",
       "  fix: max is \"any\", min is \"all\"; or x.to(torch::kLong) to count");
  must(!(at.call.reduce == Reduce::avg && !x.is_floating_point()), at, "avg of ", dtype_name(x.scalar_type()),
       " would round\n  fix: use sum, and divide explicitly");
}

/// Number of rows: a scalar is one row.
std::int64_t rows(const at::Tensor& x) { return x.dim() == 0 ? 1 : x.size(0); }
std::int64_t row_elements(const at::Tensor& x) {
  std::int64_t n = 1;
  for (std::int64_t d = 1; d < x.dim(); ++d) n *= x.size(d);
  return n;
}

/// Checks that `whole` is `size` times `part` along dim 0.
void check_parts(const Site& at, const at::Tensor& whole, const at::Tensor& part, const char* whole_role,
                 const char* part_role) {
  must(rows(whole) == at.size * rows(part) && row_elements(whole) == row_elements(part), at, whole_role, " ",
       whole.sizes(), " must be ", at.size, " times ", part_role, " ", part.sizes(), " along dim 0");
}

void check_counts(const Site& at) {
  const Call& c = at.call;
  const auto n = static_cast<std::size_t>(at.size);
  must(c.send_counts.size() == n && c.recv_counts.size() == n, at, c.send_counts.size(), " send counts and ",
       c.recv_counts.size(), " receive counts: a group of ", at.size, " needs one for each rank");
  std::int64_t sent = 0, received = 0;
  for (std::size_t i = 0; i < n; ++i) {
    must(c.send_counts[i] >= 0 && c.recv_counts[i] >= 0, at, "counts for rank ", i, " are ", c.send_counts[i], " and ",
         c.recv_counts[i], ": must not be negative");
    sent += c.send_counts[i];
    received += c.recv_counts[i];
  }
  must(sent == rows(c.input), at, "send counts add up to ", sent, " rows, the input has ", rows(c.input));
  must(received == rows(c.output), at, "receive counts add up to ", received, " rows, the output has ", rows(c.output));
  must(row_elements(c.input) == row_elements(c.output), at, "rows of input ", c.input.sizes(), " and output ",
       c.output.sizes(), " differ");
  const auto me = static_cast<std::size_t>(at.rank);
  must(c.send_counts[me] == c.recv_counts[me], at, "it sends itself ", c.send_counts[me], " rows and expects ",
       c.recv_counts[me]);
}

void check_peer(const Site& at, int peer, const char* role) {
  must(peer >= 0 && peer < at.size, at, role, " ", peer, ": must be from 0 to ", at.size - 1);
}

void check_messages(const Site& at) {
  const std::vector<Message>& all = at.call.messages;
  for (std::size_t i = 0; i < all.size(); ++i) {
    must(all[i].op == Op::send || all[i].op == Op::recv, at, "message ", i, " is a ", name(all[i].op));
    check_peer(at, all[i].peer, "peer");
    must(all[i].peer != at.rank, at, "message ", i, " is to itself");
    check_tensor(at, all[i].tensor, "a message");
    for (std::size_t j = 0; j < i; ++j)
      must((all[i].op == Op::send && all[j].op == Op::send) || !overlap(all[i].tensor, all[j].tensor), at, "messages ",
           j, " and ", i, " share memory, and one is received into it");
  }
}

}  // namespace

void check_call(const Call& c, int rank, int size, const std::string& where) {
  const Site at{c, rank, size, where};
  switch (c.op) {
    case Op::replay:
    case Op::barrier:
    case Op::step_end: return;
    case Op::batch: check_messages(at); return;
    case Op::send:
    case Op::recv:
      check_peer(at, c.peer, "peer");
      must(c.peer != rank, at, "a rank cannot ", name(c.op), " to or from itself");
      check_tensor(at, c.op == Op::send ? c.input : c.output, c.op == Op::send ? "the tensor" : "the buffer");
      return;
    case Op::all_reduce:
      check_tensor(at, c.output, "the tensor");
      check_reduce(at, c.output);
      return;
    case Op::broadcast:
      check_peer(at, c.peer, "root");
      check_tensor(at, c.output, "the tensor");
      return;
    default: break;  // those with an input and an output, below
  }
  const bool rooted = c.op == Op::reduce || c.op == Op::gather || c.op == Op::scatter;
  if (rooted) check_peer(at, c.peer, "root");
  const bool has_input = c.op != Op::scatter || rank == c.peer, has_output = c.op != Op::gather || rank == c.peer;
  if (has_input) check_tensor(at, c.input, "the input");
  if (has_output) check_tensor(at, c.output, "the output");
  if (has_input && has_output) {
    must(c.input.device() == c.output.device(), at, "input on ", c.input.device(), ", output on ", c.output.device());
    must(c.input.scalar_type() == c.output.scalar_type(), at, "input ", dtype_name(c.input.scalar_type()), ", output ",
         dtype_name(c.output.scalar_type()));
    // In a group of one the result may be the input itself; a gather's input may alias its slot in the result.
    const auto* own_part = static_cast<const char*>(c.output.const_data_ptr()) +
                           (c.op == Op::all_gather ? static_cast<std::size_t>(rank) * c.input.nbytes() : 0);
    must(!overlap(c.input, c.output) ||
             ((size == 1 || c.op == Op::all_gather) && c.input.const_data_ptr() == static_cast<const void*>(own_part)),
         at, "input and output share memory\n  fix: give the output a buffer of its own");
  }
  if (has_input) check_reduce(at, c.input);
  switch (c.op) {
    case Op::all_gather: check_parts(at, c.output, c.input, "the output", "the input"); break;
    case Op::reduce_scatter: check_parts(at, c.input, c.output, "the input", "the output"); break;
    case Op::gather:
      if (has_output) check_parts(at, c.output, c.input, "the output", "the input");
      break;
    case Op::scatter:
      if (has_input) check_parts(at, c.input, c.output, "the input", "the output");
      break;
    case Op::all_to_all:
      if (!c.send_counts.empty() || !c.recv_counts.empty()) {
        check_counts(at);
      } else {
        must(c.input.sizes() == c.output.sizes(), at, "input ", c.input.sizes(), " and output ", c.output.sizes(),
             " must be alike");
        must(rows(c.input) % size == 0, at, rows(c.input), " rows cannot be cut into ", size, " equal parts\n",
             "  fix: pass the rows for each rank (send_counts, recv_counts)");
      }
      break;
    default: break;  // checked above
  }
}

}  // namespace trireme
