#include "trireme/train/initial_values.hpp"

#include "trireme/base/error.hpp"
#include "trireme/train/component_options.hpp"

namespace trireme {

InitialValues::InitialValues(const Config& config, const std::vector<Param>& params, Mesh& mesh) {
  const std::string& init = config.model.init;
  if (init == "random") {
    values_ = random_values(mesh, init_options(config));
    return;
  }
  require<ConfigError>(init.starts_with("hf:"), "model.init = \"", init, "\": must be \"random\" or \"hf:FOLDER\"");
  folder_ = std::make_unique<HuggingFaceWeights>(config.model, params, init.substr(3));
  values_ = folder_->values(mesh);
}

}  // namespace trireme
