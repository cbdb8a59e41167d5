#pragma once
// Checkpoints of any torch::nn::Module and its optimizer, in the format of docs/checkpoints.md: each rank writes its
// part, the checkpoint appears at once, and it loads on any number of ranks and with any sharding.
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include <torch/nn/pimpl.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/lr_scheduler.h>

#include "trireme/files/fs.hpp"
#include "trireme/module/fully_shard.hpp"
#include "trireme/module/pipeline.hpp"

namespace trireme {

/// A module whose parameters every rank of a group has whole, alone or with data_parallel(); one with tensor-parallel
/// layers or experts on a mesh, of which the ranks that see other samples have the same parameters; a sharded one; a
/// pipeline. It is only referred to.
class CheckpointedModule {
 public:
  CheckpointedModule(torch::nn::Module& module, Group& group) : module_(&module), group_(&group) {}
  CheckpointedModule(torch::nn::Module& module, Mesh& mesh)
      : module_(&module), group_(&mesh.world_group()), mesh_(mesh) {}
  template <class M, class Ranks>
  CheckpointedModule(const torch::nn::ModuleHolder<M>& module, Ranks& ranks)
      : CheckpointedModule(*module.ptr(), ranks) {}
  CheckpointedModule(ShardedModule& sharded);
  CheckpointedModule(Pipeline& pipeline);

  const torch::nn::Module* module() const { return module_; }
  /// Of a pipeline: the stages of this rank.
  const torch::nn::Module& base_module() const;
  const ShardedModule* sharded() const { return sharded_; }
  const Pipeline* pipeline() const { return pipeline_; }
  /// All ranks that save and load together.
  Group& group() const { return *group_; }
  /// nullptr: there is only the group.
  const ParamMesh* mesh() const { return mesh_ ? &*mesh_ : nullptr; }

 private:
  torch::nn::Module* module_ = nullptr;
  ShardedModule* sharded_ = nullptr;
  Pipeline* pipeline_ = nullptr;  // one of the three
  Group* group_;
  std::optional<ParamMesh> mesh_;
};

struct SaveCheckpointOptions {
  /// Its states too: of Adam, AdamW, SGD, Adagrad or RMSprop for any number of ranks and any sharding; of others what
  /// their save() writes, which needs a module that every rank has whole.
  torch::optim::Optimizer* optimizer = nullptr;
  torch::optim::LRScheduler* scheduler = nullptr;  // its steps, and the learning rates; needs the optimizer
  bool random = false;                             // the states of libtorch's generators, of each rank
  std::map<std::string, std::string> fields = {};  // whatever else the program needs to go on: UTF-8
  std::int64_t keep = 0;                           // the newest checkpoints that are kept, at least two; 0: all
  files::Fs* fs = nullptr;                         // null: the operating system's
};

struct SavedCheckpoint {
  std::filesystem::path path;
  std::string warning{};  // on all ranks: why older checkpoints could not be removed (`keep`); else empty
};

/// Saves parameters, buffers (those of rank 0, or of the first rank of each pipeline stage) and optimizer states as
/// FOLDER/step-N, each element once. Collective over all ranks. When it returns, no crash can undo it. If it throws, on
/// all ranks, no checkpoint has changed and nothing is left of this one; only after a CommError, when ranks were lost,
/// it may be complete. Options of the optimizer are not stored, except for the learning rates with a scheduler.
///
///   save_checkpoint("checkpoints", step, {net, group}, {.optimizer = &optimizer});
///   save_checkpoint("checkpoints", step, model, {.optimizer = &optimizer});      // of fully_shard(), or a Pipeline
///
/// Steps only go up in a folder: to go on from an older checkpoint, save to another folder, or remove the newer ones
/// first. CheckpointError: what could not be written; a complete checkpoint of this step or of a later one is there.
/// ConfigError: another process writes to the folder; the optimizer has tensors that are not the module's, or states
/// that cannot be cut; the module has tensor-parallel layers, and no mesh was given.
SavedCheckpoint save_checkpoint(const std::filesystem::path& folder, std::int64_t step, const CheckpointedModule& what,
                                const SaveCheckpointOptions& options = {});

struct LoadCheckpointOptions {
  torch::optim::Optimizer* optimizer = nullptr;  // its states too, of the parameters that it updates
  /// Its steps, and the learning rates of the optimizer, which it needs: a scheduler whose rates follow from both, as
  /// torch::optim::StepLR and what derives from LRScheduler in the same way.
  torch::optim::LRScheduler* scheduler = nullptr;
  /// Libtorch's generators, if the checkpoint was saved by as many ranks; else they stay as they are.
  bool random = false;
  std::map<std::string, std::string>* fields = nullptr;  // gets those that were saved
};

/// Loads a checkpoint, or the newest complete one of a folder, and returns its step. Collective. Tensors keep their own
/// dtypes. Every byte is verified before anything changes: after an error, on all ranks, all is as before.
/// CheckpointError: there is none; files are missing or damaged; names or shapes differ from those of the module; the
/// states are those of another optimizer; parameters that one unit holds had different numbers of steps.
std::int64_t load_checkpoint(const std::filesystem::path& path, const CheckpointedModule& what,
                             const LoadCheckpointOptions& options = {});

}  // namespace trireme
