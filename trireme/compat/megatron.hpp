#pragma once
// What Megatron-LM calls things: its mpu functions on a ParallelContext, and a Model Parallel Unit.
#include <memory>
#include <string>

#include "trireme/runtime/rank/parallel_context.hpp"

namespace trireme::compat {

inline Group& get_tensor_model_parallel_group(const ParallelContext& c) { return c.tp_pg(); }
inline Group& get_pipeline_model_parallel_group(const ParallelContext& c) { return c.pp_pg(); }
inline Group& get_data_parallel_group(const ParallelContext& c) { return c.dp_pg(); }
inline Group& get_context_parallel_group(const ParallelContext& c) { return c.cp_pg(); }
inline Group& get_model_parallel_group(const ParallelContext& c) { return c.mesh().group({Axis::pp, Axis::tp}); }
inline int get_tensor_model_parallel_rank(const ParallelContext& c) { return c.tp_pg().rank(); }
inline int get_tensor_model_parallel_world_size(const ParallelContext& c) { return c.tp_pg().size(); }
inline int get_pipeline_model_parallel_rank(const ParallelContext& c) { return c.pp_pg().rank(); }
inline int get_pipeline_model_parallel_world_size(const ParallelContext& c) { return c.pp_pg().size(); }
inline int get_data_parallel_rank(const ParallelContext& c) { return c.dp_pg().rank(); }
inline int get_data_parallel_world_size(const ParallelContext& c) { return c.dp_pg().size(); }
inline bool is_pipeline_first_stage(const ParallelContext& c) { return c.pp_pg().rank() == 0; }
inline bool is_pipeline_last_stage(const ParallelContext& c) { return c.pp_pg().rank() == c.pp_pg().size() - 1; }

/// Connects to the other ranks at master_addr:master_port and holds this rank's groups. The data-parallel size is
/// world_size / (tp x pp). `secret`: without it nobody joins (TRIREME_SECRET of a launcher); empty: none.
class MPU {
 public:
  MPU(int rank, int world_size, int tensor_model_parallel_size, int pipeline_model_parallel_size,
      const std::string& master_addr, int master_port, const std::string& backend = "gloo",
      const std::string& secret = "");

  const ParallelContext& context() const { return *context_; }
  Group& get_tensor_model_parallel_group() const { return context_->tp_pg(); }
  Group& get_pipeline_model_parallel_group() const { return context_->pp_pg(); }
  Group& get_data_parallel_group() const { return context_->dp_pg(); }
  at::Device device() const { return context_->device(); }

 private:
  std::shared_ptr<ParallelContext> context_;
};

}  // namespace trireme::compat
