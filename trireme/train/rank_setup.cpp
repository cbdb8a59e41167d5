#include "trireme/train/rank_setup.hpp"

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/model_source.hpp"
#include "trireme/files/safetensors_folder.hpp"
#include "trireme/train/dtypes.hpp"
#include "trireme/train/train_data.hpp"

namespace trireme {

ProcessOptions process_options(Config config, const ParallelContext& context, const Variables& variables) {
  resolve_dtypes(config, context.device());
  const at::ScalarType dtype = scalar_type(config.precision.param);
  return {.threads = threads_of_rank(context.environment(), variables),
          .blas_only = context.device().is_cpu() && (dtype == at::kFloat || dtype == at::kDouble),
          .cpu_memory = context.device().is_cpu()};
}

void check_inputs(const Config& config) {
  TrainData(config).check_first_samples();
  if (config.model.init.starts_with("checkpoint:"))
    checkpoint::open_model(config.model.init.substr(std::string("checkpoint:").size()));
  if (!config.model.init.starts_with("hf:")) return;
  try {
    files::SafetensorsFolder(config.model.init.substr(3));
  } catch (const CheckpointError& e) {
    throw CheckpointError(text("model.init = \"", config.model.init, "\": ", e.what(),
                               "\n  fix: hf:FOLDER with model.safetensors, or with an index and shards"));
  }
}

}  // namespace trireme
