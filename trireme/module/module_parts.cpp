#include "trireme/module/module_parts.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <sstream>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/module/agreed_failure.hpp"
#include "trireme/parallel/state/file_dtypes.hpp"

namespace trireme {
namespace {

using files::SafetensorsDtype;

/// By the first name of a parameter.
std::map<std::string, std::vector<std::string>> aliases_of(const torch::nn::Module& module) {
  std::map<const c10::TensorImpl*, std::string> first;
  std::map<std::string, std::vector<std::string>> out;
  for (const auto& parameter : module.named_parameters()) {
    const auto [place, is_new] = first.emplace(parameter.value().unsafeGetTensorImpl(), parameter.key());
    if (!is_new) out[place->second].push_back(parameter.key());
  }
  return out;
}

void add_buffer(const NamedTensor& buffer, ModuleParts& out) {
  out.buffers.push_back(buffer);
  out.all.push_back({buffer.name, buffer.value.sizes().vec(), buffer.value.scalar_type(), /*is_buffer=*/true});
}

void add_plain(const torch::nn::Module& module, const CheckpointedModule& what, bool cut_needs_mesh, ModuleParts& out) {
  auto aliases = aliases_of(module);
  const auto params = std::make_shared<const std::vector<Param>>(distinct_params(module, what.mesh()));
  for (const Param& param : *params) {
    require<ConfigError>(what.mesh() || param.cut_degree == 1 || !cut_needs_mesh,
                         "a checkpoint of a module: ", param.name, " is cut over ", param.cut_degree,
                         " ranks, and each has another part of it",
                         "\n  fix: give the mesh of its layer in place of a group: {net, mesh}");
    out.all.push_back(
        {param.name, param.spec.shape, param.value.scalar_type(), /*is_buffer=*/false, std::move(aliases[param.name])});
    if (!has_full_value(param)) out.has_everything = false;
  }
  std::ranges::move(whole_tensors(*params, what.mesh(), what.group()), std::back_inserter(out.kept));
  out.params.push_back(params);
  for (const auto& buffer : module.named_buffers()) add_buffer({buffer.key(), buffer.value()}, out);
}

void add_sharded(const ShardedModule& sharded, ModuleParts& out) {
  for (KeptTensor& kept : sharded.kept()) out.kept.push_back(std::move(kept));
  auto aliases = aliases_of(sharded.base_module());
  for (const ShardedModule::WholeParameter& parameter : sharded.whole_parameters())
    out.all.push_back(
        {parameter.name, parameter.sizes, parameter.dtype, /*is_buffer=*/false, std::move(aliases[parameter.name])});
  for (const NamedTensor& buffer : sharded.buffers()) add_buffer(buffer, out);
  if (!sharded.is_replicated()) out.has_everything = false;
  for (const KeptTensor& kept : out.kept)
    for (const ShardPart& part : kept.parts)
      if (!has_full_value(*part.param)) out.has_everything = false;
}

/// Those of all stages. Collective.
std::vector<WholeTensor> of_all_stages(const std::vector<WholeTensor>& own, Group& stages, at::Device device) {
  std::string lines;
  for (const auto& [name, shape, dtype, is_buffer, aliases] : own) {
    lines += text(static_cast<int>(dtype), " ", is_buffer ? 1 : 0, " ", name, "\t", tuple_text(shape));
    for (const std::string& alias : aliases) lines += "\t" + alias;
    lines += "\n";
  }
  std::vector<WholeTensor> out;
  for (const std::string& of_stage : agree_on(stages, device, {}, lines)) {
    std::istringstream in(of_stage);
    int dtype = 0, is_buffer = 0;
    for (std::string line; in >> dtype >> is_buffer >> std::ws && std::getline(in, line);) {
      std::istringstream words(line);
      std::string name, shape;
      std::getline(words, name, '\t');
      std::getline(words, shape, '\t');
      WholeTensor& whole =
          out.emplace_back(name, parse_tuple(shape), static_cast<at::ScalarType>(dtype), is_buffer == 1);
      for (std::string alias; std::getline(words, alias, '\t');) whole.aliases.push_back(alias);
    }
  }
  return out;
}

}  // namespace

SafetensorsDtype stored_dtype(const std::string& name, at::ScalarType dtype) {
  const std::optional<SafetensorsDtype> found = find_file_dtype(dtype);
  require<ConfigError>(found.has_value(), "save_checkpoint, save_safetensors: ", name, " is ", dtype,
                       ", which the files do not hold\n  fix: complex64, or at::view_as_real() of it as the parameter");
  return *found;
}

at::ScalarType dtype_in_memory(const std::string& shown, const std::string& name, SafetensorsDtype dtype) {
  const std::optional<at::ScalarType> found = find_scalar_type(dtype);
  require<CheckpointError>(found.has_value(), shown, ": ", name, " is ", files::name(dtype),
                           ", which a module cannot have");
  return *found;
}

CheckpointedModule::CheckpointedModule(ShardedModule& sharded)
    : sharded_(&sharded),
      group_(sharded.mesh() ? &sharded.mesh()->mesh().world_group() : &sharded.group()),
      mesh_(sharded.mesh() ? std::optional(*sharded.mesh()) : std::nullopt) {}
CheckpointedModule::CheckpointedModule(Pipeline& pipeline)
    : pipeline_(&pipeline), group_(&pipeline.mesh().world_group()), mesh_(pipeline.mesh()) {}

const torch::nn::Module& CheckpointedModule::base_module() const {
  if (pipeline_) return pipeline_->module();
  return sharded_ ? sharded_->base_module() : *module_;
}

bool is_state(const std::string& kind) {
  for (const char* other : {checkpoint::kWeight, kBufferKind, kStepKind, kArchiveKind, checkpoint::kRandom})
    if (kind == other) return false;
  return true;
}

ModuleParts parts_of(const CheckpointedModule& what, bool cut_needs_mesh) {
  ModuleParts out;
  out.mesh = what.mesh();
  if (const Pipeline* pipeline = what.pipeline()) {
    for (const auto& [module, sharded] : pipeline->parts())
      sharded != nullptr ? add_sharded(*sharded, out) : add_plain(*module, what, cut_needs_mesh, out);
  } else if (what.sharded()) {
    add_sharded(*what.sharded(), out);
  } else {
    add_plain(*what.module(), what, cut_needs_mesh, out);
  }
  if (!out.kept.empty())
    out.device = out.kept[0].tensor.device();
  else if (!out.buffers.empty())
    out.device = out.buffers[0].value.device();
  // What ranks tell each other must be where the group takes it.
  out.device = what.group().only_device().value_or(out.device);

  if (what.mesh() == nullptr) {
    out.saves_buffers = what.group().rank() == 0;
    return out;
  }
  Mesh& mesh = what.mesh()->mesh();
  out.saves_buffers = mesh.token_group().rank() == 0 && mesh.coord(Axis::tp) == 0;
  Group& stages = mesh.group(Axis::pp);
  if (stages.size() > 1) {
    out.all = of_all_stages(out.all, stages, out.device);
    out.has_everything = false;
  }
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
