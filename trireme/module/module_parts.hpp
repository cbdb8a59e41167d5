#pragma once
// What a rank keeps of a module, as the files of a checkpoint name it: for saving and loading alike.
#include <memory>
#include <string>
#include <vector>

#include <torch/optim/optimizer.h>

#include "trireme/checkpoint/format/manifest.hpp"
#include "trireme/module/module_checkpoint.hpp"

namespace trireme {

// Kinds of stored tensors, besides checkpoint::kWeight and the names of optimizer states.
inline constexpr const char* kBufferKind = checkpoint::kBuffer;
inline constexpr const char* kStepKind = "step";  // the updates of a parameter that the optimizer has counted
inline constexpr const char* kArchiveKind = checkpoint::kArchive;
// Of Manifest::config: the name of the optimizer, its learning rates, the steps of a scheduler, fields of the user.
inline constexpr const char* kOptimizerKey = "optimizer";
inline constexpr const char* kRatesKey = "learning_rates";
inline constexpr const char* kSchedulerKey = "scheduler_steps";
inline constexpr const char* kFieldPrefix = "field.";

/// The name of the generators of a rank, of kind checkpoint::kRandom.
inline std::string random_name(int rank) { return "rank-" + std::to_string(rank); }
/// Whether a kind is of the states of an optimizer, by name.
bool is_state(const std::string& kind);

/// ConfigError for a dtype that checkpoints do not hold.
files::SafetensorsDtype stored_dtype(const std::string& name, at::ScalarType dtype);
/// CheckpointError for one that a module cannot have. `shown`: the checkpoint, `name`: the tensor, for the message.
at::ScalarType dtype_in_memory(const std::string& shown, const std::string& name, files::SafetensorsDtype dtype);

/// A parameter or buffer of any rank.
struct WholeTensor {
  std::string name;
  Shape shape;
  at::ScalarType dtype = at::kFloat;
  bool is_buffer = false;
  std::vector<std::string> aliases = {};  // the other names of a parameter that has several
};

struct ModuleParts {
  std::vector<KeptTensor> kept;
  std::vector<NamedTensor> buffers;
  std::vector<WholeTensor> all;     // of all ranks, in the order of for_each_whole()
  const ParamMesh* mesh = nullptr;  // null: parameters are whole, apart from shards
  bool has_everything = true;       // every rank has all parameters whole
  bool saves_buffers = true;        // this rank rather than another one with the same
  at::Device device = at::kCPU;     // of the first parameter, or else of the first buffer; with NCCL that of the group

  std::vector<std::shared_ptr<const std::vector<Param>>> params = {};  // that `kept` refers to
};

/// Refers to `what`. Collective for a pipeline. ConfigError for a module with tensor-parallel layers without a mesh,
/// unless what the ranks of the group have is all that matters.
ModuleParts parts_of(const CheckpointedModule& what, bool cut_needs_mesh = true);

/// ConfigError if the optimizer updates a tensor that is not the module's.
void check_optimizer_of(const ModuleParts& module, const torch::optim::Optimizer& optimizer);

}  // namespace trireme
