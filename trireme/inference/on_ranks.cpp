#include "trireme/inference/on_ranks.hpp"

#include "trireme/base/error.hpp"
#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/config/schema/dense_grid.hpp"
#include "trireme/runtime/rank/libtorch_facts.hpp"
#include "trireme/runtime/rank/out_of_memory.hpp"
#include "trireme/runtime/rank/parallel_context.hpp"
#include "trireme/runtime/rank/rank_main.hpp"
#include "trireme/train/setup/component_options.hpp"
#include "trireme/train/setup/dtypes.hpp"

namespace trireme {

at::ScalarType dtype_on(at::Device device, const std::string& name) {
  Config config;
  config.model.dtype = name;
  resolve_dtypes(config, device);
  return scalar_type(config.precision.param);
}

int on_ranks(const ModelConfig& model, const ParallelismConfig& layout, const std::vector<std::string>& words,
             const std::function<int(Mesh&, at::Device, bool)>& body) {
  const Grid grid = config::dense_grid(layout);
  const Variables variables = process_variables();
  const bool launched = detect_environment(variables, {}, visible_gpus()).launcher != "alone";
  if (!launched && visible_gpus() == 0) {
    int code = 0;
    return with_memory_errors([&] {
      run_ranks(grid.size(), [&](World& world) {
        Mesh mesh(grid, world, {}, config::expert_grid(model, layout));
        const int own = body(mesh, at::kCPU, world.rank() == 0);
        if (world.rank() == 0) code = own;
      });
      return code;
    });
  }
  RankMain how{.words = words, .variables = variables};
  how.quiet = true;
  how.flags.local_ranks = launched || grid.size() == 1 ? 0 : grid.size();
  return rank_main(how, [&](const Environment& env) {
    require<ConfigError>(env.world_size == grid.size(), "the layout ", grid.str(), " needs ", grid.size(),
                         grid.size() == 1 ? " rank, " : " ranks, ", env.world_size,
                         env.world_size == 1 ? " was started" : " were started");
    Config config;
    config.model = model;
    config.parallelism = layout;
    ParallelContext context(parallel_sizes(config), env, variables);
    return with_memory_errors([&] { return body(context.mesh(), context.device(), env.rank == 0); });
  });
}

}  // namespace trireme
