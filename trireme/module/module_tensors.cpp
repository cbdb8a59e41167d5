#include "trireme/module/module_tensors.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/embedding.h>

#include "trireme/base/error.hpp"
#include "trireme/base/fnv.hpp"
#include "trireme/base/ranks_of_job.hpp"
#include "trireme/module/agreed_failure.hpp"

namespace trireme {
namespace {

/// A line for each parameter and buffer: name, shape, dtype, and whether it is trained.
std::vector<std::string> description(const torch::nn::Module& module) {
  std::vector<std::string> out;
  for (const auto& list : {module.named_parameters(), module.named_buffers()})
    for (const auto& item : list)
      out.push_back(text(item.key(), " ", item.value().sizes(), " ", item.value().scalar_type(),
                         item.value().requires_grad() ? " trained" : ""));
  return out;
}

/// The first lines in which ranks 0 and `rank` differ. `counts`: the lines of each rank.
std::pair<std::string, std::string> first_difference(const std::vector<std::string>& own, const at::Tensor& counts,
                                                     Group& group, at::Device device, int rank) {
  const std::int64_t most = std::max(counts[0].item<std::int64_t>(), counts[rank].item<std::int64_t>());
  for (std::int64_t i = 0; i < most; ++i) {
    const std::string line = i < std::ssize(own) ? own[static_cast<std::size_t>(i)] : "no more";
    std::pair<std::string, std::string> both{broadcast_text(group, device, line, 0),
                                             broadcast_text(group, device, line, rank)};
    if (both.first != both.second) return both;
  }
  return {"the same", "the same"};
}

/// Tensors of one dtype and device travel together.
std::vector<std::vector<at::Tensor>> by_kind(const std::vector<at::Tensor>& tensors) {
  std::map<std::pair<at::ScalarType, std::string>, std::vector<at::Tensor>> kinds;
  for (const at::Tensor& tensor : tensors)
    kinds[{as_real(tensor).scalar_type(), tensor.device().str()}].push_back(as_real(tensor.detach()));
  std::vector<std::vector<at::Tensor>> out;
  for (auto& [kind, list] : kinds) out.push_back(std::move(list));
  return out;
}

at::Tensor flat(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& tensor : tensors) parts.push_back(tensor.reshape(-1));
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

std::vector<at::Tensor> parameters_if(const torch::nn::Module& module, const ParameterPredicate& predicate) {
  std::vector<at::Tensor> out;
  for (const NamedTensor& parameter : distinct_parameters(module))
    if (parameter.value.requires_grad() && predicate(parameter.name, parameter.value)) out.push_back(parameter.value);
  return out;
}

std::set<const c10::TensorImpl*> sparse_parameters(const torch::nn::Module& module) {
  std::set<const c10::TensorImpl*> out;
  const auto look_at = [&out](const torch::nn::Module& one) {
    if (const auto* embedding = dynamic_cast<const torch::nn::EmbeddingImpl*>(&one))
      if (embedding->options.sparse()) out.insert(embedding->weight.unsafeGetTensorImpl());
    if (const auto* bag = dynamic_cast<const torch::nn::EmbeddingBagImpl*>(&one))
      if (bag->options.sparse()) out.insert(bag->weight.unsafeGetTensorImpl());
  };
  look_at(module);
  for (const auto& child : module.modules(/*include_self=*/false)) look_at(*child);  // itself may be on the stack
  return out;
}

void require_dense_gradients(const torch::nn::Module& module, const std::string& function, const std::string& fix) {
  const std::set<const c10::TensorImpl*> sparse = sparse_parameters(module);
  for (const NamedTensor& parameter : distinct_parameters(module))
    require<ConfigError>(!parameter.value.requires_grad() || !sparse.contains(parameter.value.unsafeGetTensorImpl()),
                         function, ": ", parameter.name, " has sparse gradients, which ", function,
                         " cannot reduce\n  fix: ", fix);
}

ContextGuard::ContextGuard(std::string function)
    : function_(std::move(function)), context_(number_of_parallel_context()) {}

void ContextGuard::check() const {
  require<ConfigError>(context_ == 0 || context_ == number_of_parallel_context(), function_,
                       ": the ParallelContext has ended, and the process groups with it\n",
                       "  fix: keep what init() returned for as long as the module is used");
}

KnownParameters::KnownParameters(torch::nn::Module& module, std::string function)
    : function_(std::move(function)), module_(module.weak_from_this()), context_(function_) {
  for (const NamedTensor& parameter : distinct_parameters(module))
    if (parameter.value.requires_grad())
      trained_.insert(parameter.value.unsafeGetTensorImpl());
    else
      frozen_.push_back(parameter);
}

void KnownParameters::check() const {
  context_.check();
  const auto look_at = [this](const std::string& name, const at::Tensor& value) {
    require<ConfigError>(!value.requires_grad() || trained_.contains(value.unsafeGetTensorImpl()), function_, ": ",
                         name, " is trained, but was not when ", function_, " began: no rank would get the ",
                         "gradients of the others for it\n  fix: add and unfreeze parameters first, or end the ",
                         function_, " and make another one");
  };
  if (const auto module = module_.lock())
    for (const auto& parameter : module->named_parameters()) look_at(parameter.key(), parameter.value());
  else
    for (const NamedTensor& parameter : frozen_) look_at(parameter.name, parameter.value);
}

at::Tensor as_real(const at::Tensor& x) { return x.is_complex() ? at::view_as_real(x) : x; }

at::Tensor tensor_in(const at::Tensor& memory, std::int64_t begin, at::IntArrayRef sizes) {
  at::Tensor out = at::empty({0}, memory.options());
  return out.set_(memory.storage(), memory.storage_offset() + begin, sizes, at::empty(sizes, at::kMeta).strides());
}

at::Device computing_device(at::Device found, const Group& group) {
  if (!found.is_cpu() && !found.is_meta()) return found;
  return group.only_device().value_or(at::Device(at::kCPU));
}

void require_reachable(const torch::nn::Module& module, const Group& group, const std::string& function) {
  const std::optional<at::Device> wanted = group.only_device();
  if (!wanted || group.size() == 1) return;
  for (const auto& list : {module.named_parameters(), module.named_buffers()})
    for (const auto& item : list)
      require<ConfigError>(item.value().device().type() == wanted->type(), function, ": ", item.key(), " is on ",
                           item.value().device().str(), ", and ", group.str(), " communicates over NCCL, which takes ",
                           "tensors of ", wanted->str(), " alone\n  fix: net->to(run->device()) before ", function,
                           "(), and before its optimizer is made; or ContextOptions::backend = \"gloo\"");
}

void require_same_module(const torch::nn::Module& module, Group& group, at::Device device,
                         const std::string& function) {
  const std::vector<std::string> lines = description(module);
  std::string whole;
  for (const std::string& line : lines) whole += line + "\n";
  const at::Tensor own = at::tensor({static_cast<std::int64_t>(fnv1a(whole) >> 1), std::ssize(lines)}).to(device);
  const at::Tensor all = group.all_gather(own).wait().cpu().view({group.size(), 2});
  for (int rank = 1; rank < group.size(); ++rank) {
    if (all[rank][0].item<std::int64_t>() == all[0][0].item<std::int64_t>()) continue;
    const auto [here, there] = first_difference(lines, all.select(1, 1), group, device, rank);
    throw ConfigError(text(function, ": rank ", rank, " of ", group.str(),
                           " has a different module than rank 0: ", there, ", rank 0 has ", here,
                           "\n  fix: build it alike on every rank: names, shapes, dtypes and requires_grad of all ",
                           "parameters and buffers"));
  }
}

double clip_gradients(const std::vector<at::Tensor>& gradients, const std::vector<at::Tensor>& counted, double max_norm,
                      at::Device device, const std::vector<Group*>& groups) {
  const at::NoGradGuard no_grad;
  at::Tensor squares = at::zeros({1}, at::TensorOptions(at::kDouble).device(device));
  for (const at::Tensor& gradient : counted) squares.add_(as_real(gradient).to(at::kDouble).square().sum());
  for (Group* group : groups) squares = group->all_reduce(squares).wait();
  const double norm = std::sqrt(squares.item<double>());
  if (norm > max_norm)
    for (const at::Tensor& gradient : gradients) gradient.mul_(max_norm / norm);
  return norm;
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
