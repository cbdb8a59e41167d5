#include "trireme/train/rank_setup.hpp"

#include <algorithm>
#include <cstring>

#include <ATen/ops/zeros.h>

#include "trireme/base/error.hpp"
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
  if (!config.model.init.starts_with("hf:")) return;
  try {
    files::SafetensorsFolder(config.model.init.substr(3));
  } catch (const CheckpointError& e) {
    throw CheckpointError(text("model.init = \"", config.model.init, "\": ", e.what(),
                               "\n  fix: hf:FOLDER with model.safetensors, or with an index and shards"));
  }
}

std::string broadcast_text(const std::string& words, const ParallelContext& context) {
  at::Tensor bytes = at::zeros({4096}, at::kByte);
  std::memcpy(bytes.data_ptr(), words.data(), std::min<std::size_t>(words.size(), 4095));
  bytes = context.world_pg().broadcast_(bytes.to(context.device()), 0).wait().cpu();
  return static_cast<const char*>(bytes.const_data_ptr());
}

}  // namespace trireme
