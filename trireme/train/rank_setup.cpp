#include "trireme/train/rank_setup.hpp"

#include <algorithm>
#include <cstring>
#include <thread>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include "trireme/base/error.hpp"
#include "trireme/files/safetensors_folder.hpp"
#include "trireme/train/dtypes.hpp"
#include "trireme/train/train_data.hpp"

namespace trireme {

void share_cores(const Environment& environment, const Variables& variables) {
  if (variables.contains("OMP_NUM_THREADS")) return;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  at::set_num_threads(std::max(1, cores / std::max(1, environment.local_world_size)));
}

void multiply_by_blas(Config config, at::Device device) {
  resolve_dtypes(config, device);
  const at::ScalarType dtype = scalar_type(config.precision.param);
  if (device.is_cpu() && (dtype == at::kFloat || dtype == at::kDouble)) at::globalContext().setUserEnabledMkldnn(false);
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
