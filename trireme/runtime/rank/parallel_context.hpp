#pragma once
// The parallel context of a rank: its grid coordinates, its device and its process groups.
#include <memory>
#include <optional>
#include <string>

#include <c10/core/Device.h>

#include "trireme/comm/c10d_world.hpp"
#include "trireme/comm/mesh.hpp"
#include "trireme/config/schema/config.hpp"
#include "trireme/layout/grid.hpp"
#include "trireme/runtime/rank/environment.hpp"
#include "trireme/runtime/rank/fingerprint.hpp"
#include "trireme/runtime/rank/variables.hpp"

namespace trireme {

struct ParallelSizes {
  int tensor_parallel_size = 1, data_parallel_size = 1, pipeline_parallel_size = 1;
  int context_parallel_size = 1;
  int expert_parallel_size = 1, expert_tensor_parallel_size = 0;  // 0: same as tensor_parallel_size
  std::string order = Grid::kDefaultOrder;
};

struct ContextOptions {
  CommOptions comm{};
  std::string backend = "auto";  // nccl if there are GPUs, else gloo
  bool share_gpu = false;        // several ranks per GPU with NCCL: for tests
  Fingerprint fingerprint{};     // other properties that must match on all ranks: the config's keys
  std::vector<AxisSet> also{};   // groups in addition to those of every mesh
};

/// [comm] of the config.
ContextOptions context_options(const CommConfig& comm);

/// Owns all process groups. Its construction is the first collective action: the ranks meet in the store, compare their
/// fingerprints, and connect.
class ParallelContext {
 public:
  ParallelContext(const ParallelSizes& sizes, const Environment& environment, const Variables& variables = {},
                  const ContextOptions& options = {});
  /// With nanotron's parameters: the environment is detected from `variables`.
  ParallelContext(int tensor_parallel_size, int data_parallel_size, int pipeline_parallel_size,
                  const Variables& variables);
  ~ParallelContext();

  int rank() const { return environment_.rank; }
  int world_size() const { return environment_.world_size; }
  const Environment& environment() const { return environment_; }
  at::Device device() const { return device_; }
  Mesh& mesh() const { return *mesh_; }
  World& world() const { return *world_; }

  Group& world_pg() const { return mesh_->world_group(); }
  Group& tp_pg() const { return mesh_->group(Axis::tp); }
  Group& dp_pg() const { return mesh_->group(Axis::dp); }
  Group& pp_pg() const { return mesh_->group(Axis::pp); }
  Group& cp_pg() const { return mesh_->group(Axis::cp); }
  Group& ep_pg() const { return mesh_->expert_group(Axis::ep); }
  Group& edp_pg() const { return mesh_->expert_group(Axis::edp); }
  Group& world_ranks_to_pg(const std::vector<int>& world_ranks) const { return mesh_->world_ranks_to_pg(world_ranks); }

  WorldRankMatrix world_rank_matrix() const { return mesh_->grid().world_rank_matrix(); }
  LocalRanks get_local_ranks(int world_rank) const { return mesh_->grid().get_local_ranks(world_rank); }

  // Megatron-LM's mpu functions, under their original names.
  Group& get_tensor_model_parallel_group() const { return tp_pg(); }
  Group& get_pipeline_model_parallel_group() const { return pp_pg(); }
  Group& get_data_parallel_group() const { return dp_pg(); }
  Group& get_context_parallel_group() const { return cp_pg(); }
  Group& get_model_parallel_group() const { return mesh_->group({Axis::pp, Axis::tp}); }
  int get_tensor_model_parallel_rank() const { return tp_pg().rank(); }
  int get_tensor_model_parallel_world_size() const { return tp_pg().size(); }
  int get_pipeline_model_parallel_rank() const { return pp_pg().rank(); }
  int get_pipeline_model_parallel_world_size() const { return pp_pg().size(); }
  int get_data_parallel_rank() const { return dp_pg().rank(); }
  int get_data_parallel_world_size() const { return dp_pg().size(); }
  bool is_pipeline_first_stage() const { return pp_pg().rank() == 0; }
  bool is_pipeline_last_stage() const { return pp_pg().rank() == pp_pg().size() - 1; }

 private:
  const Environment environment_;
  const at::Device device_;
  std::unique_ptr<C10dWorld> world_;
  std::unique_ptr<Mesh> mesh_;
};

/// rank % num_gpus: ranks share a GPU if there are more ranks than GPUs. CPU without GPUs.
at::Device device_of_rank(int rank, int num_gpus);

/// A Megatron-style Model Parallel Unit: connects to the other ranks at master_addr:master_port and holds this rank's
/// groups. The data-parallel size is world_size / (tp x pp).
class MPU {
 public:
  MPU(int rank, int world_size, int tensor_model_parallel_size, int pipeline_model_parallel_size,
      const std::string& master_addr, int master_port, const std::string& backend = "gloo");

  const ParallelContext& context() const { return *context_; }
  Group& get_tensor_model_parallel_group() const { return context_->tp_pg(); }
  Group& get_pipeline_model_parallel_group() const { return context_->pp_pg(); }
  Group& get_data_parallel_group() const { return context_->dp_pg(); }
  at::Device device() const { return context_->device(); }

 private:
  std::shared_ptr<ParallelContext> context_;
};

}  // namespace trireme
