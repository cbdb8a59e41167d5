#include "tools/figures/figures.hpp"

#include "trireme/base/error.hpp"
#include "trireme/config/read/parse.hpp"
#include "trireme/config/rules/validate.hpp"

namespace trireme::figures {

Config config_of_preset(const std::string& preset, const std::vector<std::string>& settings) {
  std::string toml = text("model.preset = \"", preset, "\"\n");
  for (const std::string& setting : settings) toml += setting + "\n";
  config::LoadedConfig loaded = config::load_config_text("figure.toml", toml);
  config::check_config(loaded);
  return loaded.config;
}

std::vector<Figure> all_figures() {
  return {{"zero", draw_zero()},
          {"tensor", draw_tensor()},
          {"pipeline", draw_pipeline()},
          {"context", draw_context()},
          {"expert", draw_expert()}};
}

}  // namespace trireme::figures
