#include "trireme/module/module_tensors.hpp"

#include <map>
#include <set>
#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include "trireme/base/error.hpp"
#include "trireme/base/fnv.hpp"

namespace trireme {
namespace {

/// Names, shapes and dtypes of all parameters and buffers.
std::string description(const torch::nn::Module& module) {
  std::string out;
  for (const auto& list : {module.named_parameters(), module.named_buffers()})
    for (const auto& item : list)
      out += text(item.key(), " ", item.value().sizes(), " ", item.value().scalar_type(), " ",
                  item.value().requires_grad() ? 1 : 0, "\n");
  return out;
}

/// Tensors of one dtype and device travel together.
std::vector<std::vector<at::Tensor>> by_kind(const std::vector<at::Tensor>& tensors) {
  std::map<std::pair<at::ScalarType, std::string>, std::vector<at::Tensor>> kinds;
  for (const at::Tensor& tensor : tensors) kinds[{tensor.scalar_type(), tensor.device().str()}].push_back(tensor);
  std::vector<std::vector<at::Tensor>> out;
  for (auto& [kind, list] : kinds) out.push_back(std::move(list));
  return out;
}

at::Tensor flat(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& tensor : tensors) parts.push_back(tensor.detach().reshape(-1));
  return at::cat(parts);
}

void copy_from_flat(const at::Tensor& values, const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  std::int64_t begin = 0;
  for (at::Tensor tensor : tensors) {
    tensor.copy_(values.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    begin += tensor.numel();
  }
}

}  // namespace

std::vector<NamedTensor> distinct_parameters(const torch::nn::Module& module) {
  std::vector<NamedTensor> out;
  std::set<const c10::TensorImpl*> known;
  for (const auto& parameter : module.named_parameters())
    if (known.insert(parameter.value().unsafeGetTensorImpl()).second)
      out.push_back({parameter.key(), parameter.value()});
  return out;
}

at::Tensor tensor_in(const at::Tensor& memory, std::int64_t begin, at::IntArrayRef sizes) {
  at::Tensor out = at::empty({0}, memory.options());
  return out.set_(memory.storage(), memory.storage_offset() + begin, sizes, at::empty(sizes, at::kMeta).strides());
}

void require_same_module(const torch::nn::Module& module, Group& group, at::Device device,
                         const std::string& function) {
  const auto own = static_cast<std::int64_t>(fnv1a(description(module)) >> 1);
  const at::Tensor all = group.all_gather(at::tensor({own}).to(device)).wait().cpu();
  for (int rank = 1; rank < group.size(); ++rank)
    require<ConfigError>(
        all[rank].item<std::int64_t>() == all[0].item<std::int64_t>(), function, ": rank ", rank, " of ", group.str(),
        " has another module than rank 0\n",
        "  fix: build it alike on every rank: names, shapes, dtypes and requires_grad of all parameters ",
        "and buffers");
}

void broadcast_all(const std::vector<at::Tensor>& tensors, Group& group) {
  if (group.size() == 1) return;
  for (const std::vector<at::Tensor>& kind : by_kind(tensors))
    copy_from_flat(group.broadcast_(flat(kind), 0).wait(), kind);
}

void average_all(const std::vector<at::Tensor>& tensors, Group& group) {
  if (group.size() == 1) return;
  for (const std::vector<at::Tensor>& kind : by_kind(tensors))
    copy_from_flat(group.all_reduce_(flat(kind), Reduce::avg).wait(), kind);
}

void sync_buffers(const std::vector<at::Tensor>& buffers, BufferSync how, Group& group) {
  if (how == BufferSync::local || group.size() == 1) return;
  std::vector<at::Tensor> averaged, others;
  for (const at::Tensor& buffer : buffers)
    (how == BufferSync::average && buffer.is_floating_point() ? averaged : others).push_back(buffer);
  broadcast_all(others, group);
  average_all(averaged, group);
}

}  // namespace trireme
