#pragma once
// What a rank of a pipeline has: chunks, each a chain of consecutive stages.
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "trireme/module/fully_shard.hpp"
#include "trireme/module/module_tensors.hpp"
#include "trireme/module/pipeline.hpp"
#include "trireme/module/unit.hpp"

namespace trireme {

/// Stages that are called one after the other.
class StageChain final : public torch::nn::Module, public CallsChildren {
 public:
  void add(int number, Stage stage) {
    register_module(std::to_string(number), stage.module());
    links_.push_back({std::to_string(number), std::move(stage), nullptr});
  }
  Tensors forward(const Tensors& x) {
    Tensors y = x;
    for (const Link& link : links_) y = call_in_unit(link.hooks, [&](const Tensors& in) { return link.stage(in); }, y);
    return y;
  }
  void set_child_hooks(const std::string& child, std::shared_ptr<CallHooks> hooks) override {
    for (Link& link : links_)
      if (link.name == child) link.hooks = hooks;
  }

 private:
  struct Link {
    std::string name;
    Stage stage;
    std::shared_ptr<CallHooks> hooks;
  };
  std::vector<Link> links_;
};

struct OwnChunk {
  std::shared_ptr<StageChain> stages = std::make_shared<StageChain>();
  std::unique_ptr<FullyShard<StageChain>> sharded = nullptr;
  std::optional<ShardedModule::NoSync> no_sync = std::nullopt;  // before the last microbatch
  std::set<const c10::TensorImpl*> known = {};                  // the parameters that it began with

  void forget_unreduced() {
    no_sync.reset();
    if (sharded) sharded->forget_unreduced_gradients();
  }
  Tensors operator()(const Tensors& x) const { return sharded ? (*sharded)(x) : stages->forward(x); }
};

}  // namespace trireme
