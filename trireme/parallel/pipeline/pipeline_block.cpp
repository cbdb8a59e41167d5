#include "trireme/parallel/pipeline/pipeline_block.hpp"

#include <algorithm>
#include <set>

#include "trireme/base/error.hpp"
#include "trireme/nn/init_scope.hpp"
#include "trireme/parallel/pipeline/block_recording.hpp"

namespace trireme {
namespace {

void check_declared(const BlockOptions& options) {
  require<ConfigError>(!options.name.empty(), "a block has no name: error messages use it");
  require<ConfigError>(options.module_builder != nullptr, "block '", options.name, "' has no module_builder");
  require<ConfigError>(!options.module_output_keys.empty(), "block '", options.name, "' has no module_output_keys");
  for (const auto* keys : {&options.module_input_keys, &options.module_output_keys}) {
    const std::set<std::string> different(keys->begin(), keys->end());
    require<ConfigError>(different.size() == keys->size() && !different.contains(""), "block '", options.name,
                         "': the keys ", in_braces(*keys), " are not all different and not empty");
  }
}

}  // namespace

PipelineBlockImpl::PipelineBlockImpl(BlockOptions options)
    : torch::nn::Module("PipelineBlock"), options_(std::move(options)) {
  check_declared(options_);
}

PipelineBlock::PipelineBlock(BlockOptions options)
    : ModuleHolder(std::make_shared<PipelineBlockImpl>(std::move(options))) {}

std::string PipelineBlockImpl::str() const { return text("block '", options_.name, "'"); }

void PipelineBlockImpl::build_and_set_rank(int pp_rank) {
  const PipelineP2P& p2p = options_.p2p;
  require<ConfigError>(pp_rank >= 0 && pp_rank < p2p.size(), str(), " is placed on pipeline rank ", pp_rank,
                       ", but there are ", p2p.size(), " (from 0 on)");
  require<ConfigError>(pp_rank_ == -1, str(), " is placed on pipeline rank ", pp_rank, ", but it is on rank ", pp_rank_,
                       " already");
  pp_rank_ = pp_rank;
  if (!is_here()) return;
  const InitScope scope(p2p.device(), current_init_options().dtype().toScalarType());
  module_ = std::make_unique<BlockModule>(options_.module_builder());
  require<ConfigError>(module_->takes(options_.module_input_keys.size()), str(), ": its module does not take ",
                       options_.module_input_keys.size(), " tensors ", in_braces(options_.module_input_keys));
  if (module_->module() == nullptr) return;
  register_module("pp_block", module_->module());
  module_->module()->to(p2p.device());
}

void PipelineBlockImpl::check_keys(const TensorDict& inputs) const {
  for (const std::string& key : options_.module_input_keys)
    require<ConfigError>(inputs.contains(key), str(), " is called without '", key, "': it gets ",
                         in_braces(inputs.keys()), ", its module_input_keys are ",
                         in_braces(options_.module_input_keys));
  for (const auto& [key, value] : inputs)
    require<ConfigError>(std::ranges::find(options_.module_input_keys, key) != options_.module_input_keys.end(), str(),
                         " is called with '", key, "', which is none of its module_input_keys ",
                         in_braces(options_.module_input_keys));
}

/// Of inputs that no block has computed.
void PipelineBlockImpl::check_owners(const TensorDict& inputs) const {
  std::vector<std::string> keys;
  std::vector<std::int64_t> places;
  for (const std::string& key : options_.module_input_keys)
    if (const TensorOrPointer value = inputs[key]; !value.from_block_) {
      keys.push_back(key);
      places.push_back(place_of(value));
    }
  const auto by_rank = options_.p2p.gather(places);
  for (std::size_t k = 0; k < keys.size(); ++k) {
    std::vector<std::int64_t> of_key;
    for (const auto& of_rank : by_rank) of_key.push_back(of_rank[k]);
    owner_of(text(str(), ", input '", keys[k], "'"), of_key);
  }
}

TensorDict PipelineBlockImpl::forward(const TensorDict& inputs) {
  require<ConfigError>(pp_rank_ != -1, str(), " is called, but it is on no rank",
                       "\n  fix: build_and_set_rank(pp_rank) on all ranks, before the first call");
  check_keys(inputs);
  if (BlockRecorder* recorder = options_.p2p.recorder())
    return recorder->record_call(std::static_pointer_cast<PipelineBlockImpl>(shared_from_this()), inputs);
  return execute(inputs);
}

TensorDict PipelineBlockImpl::execute(const TensorDict& inputs) {
  PipelineP2P& p2p = options_.p2p;
  for (const auto& [key, value] : inputs)
    require<ConfigError>(!value.recorded_, str(), ", input '", key, "': a value of the forward that an engine records",
                         "\n  fix: call the block in the forward that the engine calls; all blocks share one p2p");
  check_owners(inputs);
  ++calls_;
  Tensors arguments;
  for (const std::string& key : options_.module_input_keys) {
    const TensorOrPointer value = inputs[key];
    const std::string what = text(str(), ", call ", calls_, ", input '", key, "'");
    if (is_here())
      arguments.push_back(value.is_tensor() ? value.tensor() : p2p.receive(value.pointer().group_rank, what));
    else if (value.is_tensor())
      p2p.send(value.tensor(), pp_rank_, what);
  }
  TensorDict::Entries results;
  const Tensors computed = is_here() ? compute(arguments) : Tensors();
  for (std::size_t i = 0; i < options_.module_output_keys.size(); ++i) {
    TensorOrPointer result =
        is_here() ? TensorOrPointer(computed[i]) : TensorOrPointer(TensorPointer{.group_rank = pp_rank_});
    result.from_block_ = true;
    results.emplace(options_.module_output_keys[i], std::move(result));
  }
  return {std::move(results), text("the result of ", str())};
}

Tensors PipelineBlockImpl::compute(const Tensors& inputs) const {
  require(module_ != nullptr, str(), " is computed on a rank that does not have it");
  const std::vector<std::string>& keys = options_.module_output_keys;
  const BlockResult result = (*module_)(options_.module_input_keys, inputs);
  Tensors out;
  if (const auto* one = std::get_if<at::Tensor>(&result)) {
    require<ConfigError>(keys.size() == 1, str(), " returned one tensor, its module_output_keys are ", in_braces(keys),
                         "\n  fix: return a NamedTensors with these keys");
    out.push_back(*one);
  } else {
    const auto& named = std::get<NamedTensors>(result);
    for (const std::string& key : keys)
      require<ConfigError>(named.contains(key), str(), " did not return '", key, "', one of its module_output_keys ",
                           in_braces(keys));
    for (const auto& [key, tensor] : named)
      require<ConfigError>(std::ranges::find(keys, key) != keys.end(), str(), " returned '", key,
                           "', which is none of its module_output_keys ", in_braces(keys));
    for (const std::string& key : keys) out.push_back(named.at(key));
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {
    require<ConfigError>(out[i].defined(), str(), " returned an undefined tensor as '", keys[i], "'");
    require<ConfigError>(out[i].device().type() == options_.p2p.device().type(), str(), " returned '", keys[i], "' on ",
                         out[i].device(), ", the device of its pipeline is ", options_.p2p.device());
  }
  return out;
}

}  // namespace trireme
