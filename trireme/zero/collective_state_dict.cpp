#include "trireme/zero/collective_state_dict.hpp"

#include "trireme/nn/full_tensor.hpp"

namespace trireme {
namespace {

/// In the order in which a model registers them: buckets are in backward order.
template <class F>
void for_each_of_bucket(const Partition& partition, std::size_t b, const F& f) {
  const FlatBucket& bucket = partition.bucket(b);
  for (std::size_t s = bucket.slots.size(); s-- > 0;) f(partition.params()[bucket.slots[s].item]);
}

}  // namespace

void for_each_param(const Zero& zero, const std::function<void(const Param& param)>& f) {
  for (const ZeroPart* part : zero.parts())
    for (std::size_t b = part->partition.num_buckets(); b-- > 0;) for_each_of_bucket(part->partition, b, f);
  for (const Param& param : zero.frozen()) f(param);
}

void for_each_full_param(Zero& zero, const std::function<void(const Param& param, const at::Tensor& full)>& f) {
  const at::NoGradGuard no_grad;
  zero.finish_gathers();
  const ParamMesh mesh = zero.parts()[0]->partition.mesh();
  const auto give = [&](const Param& param) {
    f(param, gather_full_tensor(param.value.detach(), param.spec, mesh).value);
  };
  for (ZeroPart* part : zero.parts())
    for (std::size_t b = part->partition.num_buckets(); b-- > 0;)
      part->params.with_whole(b, [&] { for_each_of_bucket(part->partition, b, give); });
  for (const Param& param : zero.frozen()) give(param);
}

std::map<std::string, at::Tensor> collective_state_dict(Zero& zero, StateOn where) {
  std::map<std::string, at::Tensor> state;
  const bool wanted = where == StateOn::all_ranks || zero.parts()[0]->partition.mesh().mesh().rank() == 0;
  for_each_full_param(zero, [&](const Param& param, const at::Tensor& full) {
    if (wanted) state[param.name] = full.cpu();
  });
  return state;
}

}  // namespace trireme
