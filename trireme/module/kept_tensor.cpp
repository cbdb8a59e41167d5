#include "trireme/module/kept_tensor.hpp"

#include <set>
#include <utility>

#include "trireme/parallel/tensor/full_tensor.hpp"

namespace trireme {

std::vector<Param> distinct_params(const torch::nn::Module& module, const ParamMesh* mesh) {
  std::vector<Param> out;
  std::set<const c10::TensorImpl*> known;
  for (Param& param : params_of(module)) {
    if (!known.insert(param.value.unsafeGetTensorImpl()).second) continue;
    if (mesh == nullptr) param.spec = {.shape = param.value.sizes().vec()};
    out.push_back(std::move(param));
  }
  return out;
}

bool has_full_value(const Param& param) { return param.cut_degree == 1 && param.value.sizes() == param.spec.shape; }

at::Tensor full_value(const Param& param, const ParamMesh& mesh) {
  return has_full_value(param) ? param.value : gather_full_tensor(param.value, param.spec, mesh).value;
}

std::vector<KeptTensor> whole_tensors(const std::vector<Param>& params, const ParamMesh* mesh, Group& same) {
  std::vector<KeptTensor> out;
  for (const Param& param : params)
    out.push_back(
        {param.value, {{&param, {0, param.value.numel()}}}, mesh != nullptr ? &mesh->sum_group(param.spec) : &same});
  return out;
}

std::vector<StateSlice> held_slices(const KeptTensor& kept, std::span<const ShardTensor> tensors,
                                    const ParamMesh* mesh) {
  std::vector<StateSlice> out;
  for (const ShardPart& part : kept.parts) add_slices(part, held_pieces(*part.param, mesh), tensors, out);
  return out;
}

std::vector<StateSlice> saved_slices(const KeptTensor& kept, std::span<const ShardTensor> tensors,
                                     const ParamMesh* mesh) {
  const std::int64_t size = kept.tensor.numel();
  const Range mine = kept.replicas != nullptr ? range_of_replica(size, *kept.replicas) : Range{0, size};
  std::vector<StateSlice> out;
  for (const ShardPart& part : kept.parts)
    add_slices(within(part, mine), saved_pieces(*part.param, mesh), tensors, out);
  return out;
}

std::vector<at::Tensor> counted_gradients(const std::vector<KeptTensor>& kept, const ParamMesh* mesh) {
  std::vector<at::Tensor> out;
  for (const KeptTensor& one : kept) {
    const at::Tensor gradient = one.tensor.grad();
    if (!gradient.defined()) continue;
    const ShardTensor flat{"gradient", gradient.detach().reshape({-1})};
    for (const StateSlice& slice : saved_slices(one, {&flat, 1}, mesh)) out.push_back(slice.values);
  }
  return out;
}

}  // namespace trireme
