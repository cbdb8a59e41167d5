#include "trireme/train/setup/checked_config.hpp"

#include "trireme/base/error.hpp"
#include "trireme/config/rules/training_rules.hpp"
#include "trireme/config/rules/validate.hpp"
#include "trireme/config/settings/toml_file.hpp"
#include "trireme/train/setup/component_options.hpp"
#include "trireme/train/setup/rank_setup.hpp"

namespace trireme {

config::LoadedConfig checked_config(const std::string& file, const std::string& toml, const config::Settings& overrides,
                                    const config::Started& started, std::vector<std::string>& warnings) {
  config::LoadedConfig loaded = config::load_settings(file, toml, config::parse_toml(file, toml), overrides);
  warnings = config::check_config(loaded, started);
  config::throw_if_any(config::validate_for_training(loaded));
  for (std::string& warning : check_options(loaded.config)) warnings.push_back(std::move(warning));
  for (std::string& warning : config::training_notes(loaded)) warnings.push_back(std::move(warning));
  check_inputs(loaded.config);
  return loaded;
}

Config training_config(const std::string& file, const std::string& toml, const config::Settings& overrides, int ranks,
                       std::vector<std::string>* warnings) {
  if (ranks == 0) {
    const config::LoadedConfig asked = config::load_settings(file, toml, config::parse_toml(file, toml), overrides);
    const ParallelismConfig& p = asked.config.parallelism;
    ranks = static_cast<int>(config::ranks_of_a_replica(p) * std::max<std::int64_t>(1, p.dp));
  }
  std::vector<std::string> unread;
  return checked_config(file, toml, overrides, {.ranks = ranks, .how = text(ranks, " ranks"), .ranks_of_a_host = ranks},
                        warnings != nullptr ? *warnings : unread)
      .config;
}

Config read_training_config(const std::string& file, const std::vector<std::string>& flags, int ranks) {
  return training_config(file, config::read_config_file(file), config::parse_flags(flags), ranks);
}

}  // namespace trireme
