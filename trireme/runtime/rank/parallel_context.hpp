#pragma once
// The parallel context of a rank: its grid coordinates, its device and its process groups.
#include <memory>
#include <optional>
#include <string>

#include <c10/core/Device.h>

#include "trireme/comm/backends/c10d_world.hpp"
#include "trireme/comm/mesh.hpp"
#include "trireme/config/schema/config.hpp"
#include "trireme/layout/grid.hpp"
#include "trireme/runtime/environment/environment.hpp"
#include "trireme/runtime/environment/variables.hpp"
#include "trireme/runtime/rank/fingerprint.hpp"

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
  bool shared_memory = true;     // between ranks of one host, without GPUs (comm/backends/shared_memory)
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

 private:
  const Environment environment_;
  const at::Device device_;
  std::unique_ptr<C10dWorld> world_;
  std::unique_ptr<Mesh> mesh_;
};

/// rank % num_gpus: ranks share a GPU if there are more ranks than GPUs. CPU without GPUs.
at::Device device_of_rank(int rank, int num_gpus);

}  // namespace trireme
