#include "trireme/module/module_parts.hpp"

#include <algorithm>
#include <array>

#include "trireme/base/error.hpp"
#include "trireme/nn/layer.hpp"

namespace trireme {
namespace {

using files::SafetensorsDtype;

constexpr std::array<std::pair<at::ScalarType, SafetensorsDtype>, 10> kStoredDtypes{
    {{at::kDouble, SafetensorsDtype::F64},
     {at::kFloat, SafetensorsDtype::F32},
     {at::kHalf, SafetensorsDtype::F16},
     {at::kBFloat16, SafetensorsDtype::BF16},
     {at::kComplexFloat, SafetensorsDtype::C64},
     {at::kLong, SafetensorsDtype::I64},
     {at::kInt, SafetensorsDtype::I32},
     {at::kShort, SafetensorsDtype::I16},
     {at::kByte, SafetensorsDtype::U8},
     {at::kBool, SafetensorsDtype::BOOL}}};

/// By the mesh that a layer was made for: the group of the checkpoint may be one of data parallelism only.
void check_not_cut(const torch::nn::Module& module) {
  for (const Param& param : params_of(module))
    require<ConfigError>(param.cut_degree == 1, "a checkpoint of a module: ", param.name, " is cut over ",
                         param.cut_degree, " ranks, and each has another part of it",
                         "\n  fix: a Zero or a Trainer saves such layers");
}

}  // namespace

SafetensorsDtype stored_dtype(const std::string& name, at::ScalarType dtype) {
  const auto found = std::ranges::find(kStoredDtypes, dtype, [](const auto& pair) { return pair.first; });
  require<ConfigError>(found != kStoredDtypes.end(), "save_checkpoint: ", name, " is ", dtype,
                       ", which checkpoints do not hold");
  return found->second;
}

at::ScalarType dtype_in_memory(const std::string& shown, const std::string& name, SafetensorsDtype dtype) {
  const auto found = std::ranges::find(kStoredDtypes, dtype, [](const auto& pair) { return pair.second; });
  require<CheckpointError>(found != kStoredDtypes.end(), shown, ": ", name, " is ", files::name(dtype),
                           ", which a module cannot have");
  return found->first;
}

bool is_state(const std::string& kind) {
  for (const char* other : {checkpoint::kWeight, kBufferKind, kStepKind, kArchiveKind, checkpoint::kRandom})
    if (kind == other) return false;
  return true;
}

ModuleParts parts_of(const CheckpointedModule& what) {
  ModuleParts out;
  if (const ShardedModule* sharded = what.sharded()) {
    check_not_cut(sharded->base_module());
    out.kept = sharded->kept();
    out.buffers = sharded->buffers();
    for (const ShardedModule::WholeParameter& parameter : sharded->whole_parameters())
      out.parameters.emplace_back(parameter.name, parameter.sizes);
    out.is_replicated = sharded->is_replicated();
  } else {
    check_not_cut(*what.module());
    for (const NamedTensor& parameter : distinct_parameters(*what.module())) {
      const Shape sizes = parameter.value.sizes().vec();
      out.parameters.emplace_back(parameter.name, sizes);
      out.kept.push_back({parameter.value, {{.name = parameter.name, .sizes = sizes, .range = {0, numel(sizes)}}}});
    }
    for (const auto& buffer : what.module()->named_buffers()) out.buffers.push_back({buffer.key(), buffer.value()});
  }
  if (!out.kept.empty())
    out.device = out.kept[0].tensor.device();
  else if (!out.buffers.empty())
    out.device = out.buffers[0].value.device();
  // What ranks tell each other must be where the group takes it.
  out.device = what.group().only_device().value_or(out.device);
  return out;
}

void check_optimizer_of(const ModuleParts& module, const torch::optim::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups())
    for (const at::Tensor& tensor : group.params())
      require<ConfigError>(
          std::ranges::any_of(module.kept, [&](const KeptTensor& k) { return k.tensor.is_same(tensor); }),
          "a checkpoint of an optimizer that updates a tensor of sizes ", tensor.sizes(),
          ", which is not the module's\n  fix: make it of the module's parameters, ",
          "or of shards() of the sharded module, after it was sharded");
}

}  // namespace trireme
