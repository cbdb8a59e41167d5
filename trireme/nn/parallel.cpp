#include "trireme/nn/parallel.hpp"

#include "trireme/base/error.hpp"
#include "trireme/comm/differentiable.hpp"

namespace trireme {

Parallel::Parallel(Mesh& mesh, bool sequence)
    : params(mesh),
      tp(mesh.group(Axis::tp)),
      cp(mesh.group(Axis::cp)),
      ep(mesh.params().has_experts() ? mesh.expert_group(Axis::ep) : mesh.group({})),
      sequence_parallel(sequence) {}

at::Tensor Parallel::own_tokens(const at::Tensor& x_T) const {
  if (!sequence_parallel) return x_T;
  const std::int64_t tokens = x_T.size(0);
  require<ConfigError>(tokens % tp.size() == 0, "sequence parallel over group ", tp.str(), ": ", tokens,
                       " tokens are not divisible by its ", tp.size(),
                       " ranks\n  fix: a batch x sequence length that tp divides, or sequence_parallel = false");
  return x_T.narrow(0, tp.rank() * (tokens / tp.size()), tokens / tp.size());
}

at::Tensor Parallel::gather(const at::Tensor& x_t) const {
  return sequence_parallel ? differentiable::all_gather(x_t, 0, tp) : differentiable::sum_grads(x_t, tp);
}

at::Tensor Parallel::add_up(const at::Tensor& part_T) const {
  return sequence_parallel ? differentiable::reduce_scatter(part_T, 0, tp) : differentiable::all_reduce(part_T, tp);
}

}  // namespace trireme
