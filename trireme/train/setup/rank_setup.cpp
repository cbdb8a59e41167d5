#include "trireme/train/setup/rank_setup.hpp"

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/sources/model_source.hpp"
#include "trireme/files/safetensors_folder.hpp"
#include "trireme/kernels/matmul/fp8.hpp"
#include "trireme/train/setup/dtypes.hpp"
#include "trireme/train/setup/train_data.hpp"

namespace trireme {

ProcessOptions process_options(Config config, const ParallelContext& context, const Variables& variables) {
  resolve_dtypes(config, context.device());
  const at::ScalarType dtype = scalar_type(config.precision.param);
  return {.threads = threads_of_rank(context.environment(), variables),
          .blas_only = context.device().is_cpu() && (dtype == at::kFloat || dtype == at::kDouble),
          .cpu_memory = context.device().is_cpu()};
}

std::vector<std::string> check_inputs(const Config& config) {
  const TrainData data(config);
  data.check_first_samples();
  if (config.model.init.starts_with("checkpoint:"))
    checkpoint::open_model(config.model.init.substr(std::string("checkpoint:").size()));
  if (config.model.init.starts_with("hf:")) try {
      files::SafetensorsFolder(config.model.init.substr(3));
    } catch (const CheckpointError& e) {
      throw CheckpointError(text("model.init = \"", config.model.init, "\": ", e.what(),
                                 "\n  fix: hf:FOLDER with model.safetensors, or with an index and shards"));
    }
  return data.warnings();
}

void check_products(const Config& config, at::Device device) {
  if (config.precision.matmul != "fp8") return;
  const std::string why_not = kernels::why_no_fp8(device);
  require<ConfigError>(why_not.empty(), "precision.matmul = \"fp8\", but ", why_not,
                       "\n  fix: precision.matmul = \"auto\", or a GPU of compute capability 8.9 or more");
}

void check_device(const Config& config, at::Device device) {
  check_products(config, device);
  require<ConfigError>(device.is_cuda() || config.comm.backend != "nccl",
                       "comm.backend = \"nccl\", and this host has no visible GPU\n  fix: comm.backend = \"gloo\"");
}

}  // namespace trireme
