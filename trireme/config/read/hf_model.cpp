#include "trireme/config/read/hf_model.hpp"

#include "trireme/base/error.hpp"
#include "trireme/config/read/derive.hpp"
#include "trireme/config/read/parse.hpp"
#include "trireme/config/settings/violation.hpp"

namespace trireme::config {

ModelConfig model_of_hf_config(const std::string& file, const HfConfig& config) {
  LoadedConfig loaded = load_settings("", "", config.settings, Settings{});
  if (!loaded.violations.empty())
    throw ConfigError(text(file, ": ", report(loaded.violations),
                           "\n  fix: a model with supported values; the section [model] of docs/config.md lists them"));
  derive(loaded);
  return loaded.config.model;
}

}  // namespace trireme::config
