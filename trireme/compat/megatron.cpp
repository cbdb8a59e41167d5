#include "trireme/compat/megatron.hpp"

#include "trireme/base/error.hpp"

namespace trireme::compat {

MPU::MPU(int rank, int world_size, int tensor_model_parallel_size, int pipeline_model_parallel_size,
         const std::string& master_addr, int master_port, const std::string& backend, const std::string& secret) {
  const int model = tensor_model_parallel_size * pipeline_model_parallel_size;
  require<ConfigError>(model >= 1 && world_size % model == 0, "world_size = ", world_size,
                       " is not divisible by tensor_model_parallel_size = ", tensor_model_parallel_size,
                       " x pipeline_model_parallel_size = ", pipeline_model_parallel_size);
  const Environment environment{
      .launcher = "MPU",
      .rank = rank,
      .world_size = world_size,
      .local_rank = rank,
      .local_world_size = world_size,
      // Nothing says where the ranks are; with a master that other hosts reach, each may be on its own.
      .num_nodes =
          master_addr == "localhost" || master_addr == "::1" || master_addr.starts_with("127.") ? 1 : world_size,
      .master_addr = master_addr,
      .master_port = master_port,
      .secret = secret,
      .how = text("MPU: rank ", rank, " of ", world_size, ", store ", store_url(master_addr, master_port))};
  context_ = std::make_shared<ParallelContext>(ParallelSizes{.tensor_parallel_size = tensor_model_parallel_size,
                                                             .data_parallel_size = world_size / model,
                                                             .pipeline_parallel_size = pipeline_model_parallel_size},
                                               environment, Variables{}, ContextOptions{.backend = backend});
}

}  // namespace trireme::compat
