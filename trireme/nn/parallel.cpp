#include "trireme/nn/parallel.hpp"

#include "trireme/base/error.hpp"
#include "trireme/comm/differentiable.hpp"

namespace trireme {
namespace {

ContextSplit checked(ContextSplit split, const Group& cp) {
  if (split == ContextSplit{}) split.cp = cp.size();
  require<ConfigError>(split.cp == cp.size(), "a split of samples over ", split.cp,
                       " ranks on a mesh with cp = ", cp.size());
  return split;
}

/// Every `step`-th rank of cp from `first` on.
std::vector<int> some_ranks(const Group& cp, int first, int step, int count) {
  std::vector<int> out;
  for (int i = 0; i < count; ++i) out.push_back(cp.world_ranks()[static_cast<std::size_t>(first + i * step)]);
  return out;
}

Group& ulysses_group(Mesh& mesh, const ContextSplit& split) {
  const Group& cp = mesh.group(Axis::cp);
  if (split.ulysses == 1) return mesh.group({});
  return mesh.group_of_ranks(some_ranks(cp, cp.rank() / split.ulysses * split.ulysses, 1, split.ulysses));
}

/// Not the group of cp: with NCCL its messages would wait for the reductions that use the same ranks.
Group& ring_group(Mesh& mesh, const ContextSplit& split) {
  const Group& cp = mesh.group(Axis::cp);
  if (split.ring() == 1) return mesh.group({});
  return mesh.own_group("ring", some_ranks(cp, cp.rank() % split.ulysses, split.ulysses, split.ring()));
}

}  // namespace

Parallel::Parallel(Mesh& mesh, bool sequence, const ContextSplit& split)
    : params(mesh),
      tp(mesh.group(Axis::tp)),
      cp(mesh.group(Axis::cp)),
      ep(mesh.params().has_experts() ? mesh.expert_group(Axis::ep) : mesh.group({})),
      sequence_parallel(sequence),
      context(checked(split, cp)),
      ring(ring_group(mesh, context)),
      ulysses(ulysses_group(mesh, context)) {}

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
