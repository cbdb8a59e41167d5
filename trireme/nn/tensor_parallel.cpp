#include "trireme/nn/tensor_parallel.hpp"

#include "trireme/base/error.hpp"
#include "trireme/comm/differentiable.hpp"

namespace trireme {

at::Tensor TensorParallel::own_tokens(const at::Tensor& x_T) const {
  if (!sequence_parallel) return x_T;
  const int64_t tokens = x_T.size(0);
  require<ConfigError>(tokens % size() == 0, "sequence parallel over group ", group.str(), ": ", tokens,
                       " tokens are not divisible by its ", size(),
                       " ranks\n  fix: a batch x sequence length that tp divides, or sequence_parallel = false");
  return x_T.narrow(0, rank() * (tokens / size()), tokens / size());
}

at::Tensor TensorParallel::gather(const at::Tensor& x_t) const {
  return sequence_parallel ? differentiable::all_gather(x_t, 0, group) : differentiable::sum_grads(x_t, group);
}

at::Tensor TensorParallel::add_up(const at::Tensor& part_T) const {
  return sequence_parallel ? differentiable::reduce_scatter(part_T, 0, group)
                           : differentiable::all_reduce(part_T, group);
}

}  // namespace trireme
