#include "trireme/config/rules/training_rules.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/config/schema/choices.hpp"

namespace trireme::config {

std::vector<Violation> validate_for_training(const LoadedConfig& loaded) {
  const Config& c = loaded.config;
  std::vector<Violation> violations;
  const auto add = [&](Place place, std::string headline, std::string fix) {
    Violation v;
    v.headline = std::move(headline);
    v.place = std::move(place);
    v.fix = std::move(fix);
    violations.push_back(std::move(v));
  };
  const Place file{loaded.file, 0, 0, ""};
  if (c.model.hidden_size == 0)
    add(file, "no model to train", "set model.preset, for instance \"tiny-llama\", or the sizes themselves");
  if (std::ranges::all_of(c.data, [](const DataStage& stage) { return stage.sources.empty(); }))
    add(file, "no data to train on: no [[data]] has sources",
        "[[data]] with sources = [ { path = \"...\" } ], or path = \"synthetic\"");
  return violations;
}

std::vector<std::string> training_notes(const LoadedConfig& loaded) {
  std::vector<std::string> words;
  if (loaded.config.validation.fraction > 0 && loaded.config.validation.interval == 0)
    words.push_back(text("validation.fraction = ", loaded.config.validation.fraction,
                         " of the tokens is held out, but never used: validation.interval = 0"));
  return words;
}

std::int64_t layers_per_unit(const Config& config) {
  const std::optional<ZeroUnit> unit = parse_zero_unit(config.parallelism.zero_unit);
  require<ConfigError>(unit.has_value(), "parallelism.zero_unit = \"", config.parallelism.zero_unit,
                       "\": must be \"layer\", \"model\" or a number of layers");
  return unit->kind == ZeroUnit::Kind::model ? 0 : unit->layers;
}

}  // namespace trireme::config
