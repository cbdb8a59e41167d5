#pragma once
// A part of a model that one rank of a pipeline holds and computes. A model is a DAG of blocks that all ranks write
// down alike: DummyModel in examples/dummy_model.cpp.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "trireme/parallel/pipeline/block_module.hpp"
#include "trireme/parallel/pipeline/pipeline_p2p.hpp"
#include "trireme/parallel/pipeline/tensor_dict.hpp"

namespace trireme {

struct BlockOptions {
  PipelineP2P& p2p;
  std::string name;  // for error messages
  /// Called on one rank only, which then has the parameters: [] { return torch::nn::Linear(3, 5); }
  std::function<BlockModule()> module_builder;
  /// In the order of the module's arguments.
  std::vector<std::string> module_input_keys;
  std::vector<std::string> module_output_keys;
};

class PipelineBlockImpl : public torch::nn::Module {
 public:
  explicit PipelineBlockImpl(BlockOptions options);

  /// Places the block: rank `pp_rank` of the pipeline builds the module on its device, as the submodule "pp_block". All
  /// ranks call it, once.
  void build_and_set_rank(int pp_rank);

  // Note [Calls of blocks]
  // All ranks of the pipeline call the block, each with its tensors and pointers. The block's rank gets the inputs that
  // other ranks have from them, computes, and has tensors as results; the others have pointers to it. Inputs that no
  // block has computed are compared between the ranks first, which they all wait for.
  //
  // A tensor that arrives from another rank has no graph: a backward of such a call ends there. For gradients call the
  // blocks in the forward of an engine (pipeline_engine.hpp), where the call is only recorded.

  /// Throws ConfigError that names the block: keys other than its own, an input that not exactly one rank has, a block
  /// that is not placed, a result that is not what was declared.
  TensorDict forward(const TensorDict& inputs);

  /// On the block's rank: the results for the inputs, both in the order of the keys.
  Tensors compute(const Tensors& inputs) const;

  /// As text for messages: "block 'dense1'".
  std::string str() const;
  /// -1 until it is placed.
  int pp_rank() const { return pp_rank_; }
  bool is_here() const { return pp_rank_ == options_.p2p.rank(); }
  const BlockOptions& options() const { return options_; }

 private:
  void check_keys(const TensorDict& inputs) const;
  void check_owners(const TensorDict& inputs) const;
  TensorDict execute(const TensorDict& inputs);

  const BlockOptions options_;
  int pp_rank_ = -1;
  std::unique_ptr<BlockModule> module_;  // on its rank
  std::int64_t calls_ = 0;
};

/// Shared by its copies, as torch's own modules; for register_module.
class PipelineBlock : public torch::nn::ModuleHolder<PipelineBlockImpl> {
 public:
  explicit PipelineBlock(BlockOptions options);
  PipelineBlock(std::shared_ptr<PipelineBlockImpl> block) : ModuleHolder(std::move(block)) {}

  void build_and_set_rank(int pp_rank) { impl_->build_and_set_rank(pp_rank); }
  TensorDict operator()(const TensorDict& inputs) const { return impl_->forward(inputs); }
};

}  // namespace trireme
