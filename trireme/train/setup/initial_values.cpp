#include "trireme/train/setup/initial_values.hpp"

#include "trireme/base/error.hpp"
#include "trireme/train/setup/component_options.hpp"
#include "trireme/train/setup/source_values.hpp"

namespace trireme {

InitialValues::InitialValues(const Config& config, const std::vector<Param>& params, Mesh& mesh) {
  const std::string& init = config.model.init;
  if (init == "random") {
    values_ = random_values(mesh, init_options(config));
    return;
  }
  if (init.starts_with("checkpoint:")) {
    source_ = checkpoint::open_model(init.substr(std::string("checkpoint:").size()));
    values_ = source_values(*source_, mesh);
    return;
  }
  require<ConfigError>(init.starts_with("hf:"), "model.init = \"", init,
                       "\": must be \"random\", \"hf:FOLDER\" or \"checkpoint:FOLDER\"");
  folder_ = std::make_unique<HuggingFaceWeights>(config.model, params, init.substr(3));
  values_ = folder_->values(mesh);
}

}  // namespace trireme
