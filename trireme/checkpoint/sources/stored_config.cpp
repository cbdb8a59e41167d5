#include "trireme/checkpoint/sources/stored_config.hpp"

#include <map>

#include "trireme/base/error.hpp"
#include "trireme/base/listed.hpp"
#include "trireme/config/rules/validate.hpp"
#include "trireme/config/schema/fields.hpp"
#include "trireme/config/settings/convert.hpp"
#include "trireme/config/settings/toml_file.hpp"
#include "trireme/describe/counts.hpp"
#include "trireme/describe/parameters.hpp"
#include "trireme/files/shown_name.hpp"

namespace trireme::checkpoint {
namespace {

constexpr const char* kConfigFix = "\n  fix: a checkpoint that `trireme train` has saved";

/// A value in TOML syntax, and nothing besides it.
config::Value value_of(const std::string& toml) {
  const config::Settings settings = config::parse_toml("", text("value = ", toml, "\n"));
  require<ConfigError>(settings.size() == 1 && settings.front().path == "value", "is not a value");
  return settings.front().value;
}

/// "" if the value fits the field, which has it then.
std::string why_not_assigned(const config::Field& field, const std::string& toml) {
  try {
    return config::assign_value(field, value_of(toml));
  } catch (const ConfigError&) {
    return "is not a value";
  }
}

void check_model_sizes(const ModelConfig& m, const Manifest& manifest, const std::string& shown) {
  const std::pair<const char*, std::int64_t> sizes[] = {{"hidden_size", m.hidden_size},
                                                        {"num_hidden_layers", m.num_hidden_layers},
                                                        {"num_attention_heads", m.num_attention_heads},
                                                        {"num_key_value_heads", m.num_key_value_heads},
                                                        {"head_dim", m.head_dim},
                                                        {"intermediate_size", m.intermediate_size},
                                                        {"vocab_size", m.vocab_size}};
  for (const auto& [key, size] : sizes)
    require<CheckpointError>(size > 0, shown, ": its config has model.", key, " = ", size, kConfigFix);
  // Before names are made for each of the layers.
  require<CheckpointError>(config::is_countable(m) && m.num_hidden_layers <= std::ssize(manifest.tensors), shown,
                           ": its config has ", m.num_hidden_layers, " layers of hidden_size = ", m.hidden_size,
                           ", and the checkpoint ", manifest.tensors.size(), " tensors", kConfigFix);
  constexpr std::int64_t kMostExperts = 1 << 18;  // of all layers: each has a name
  require<CheckpointError>(m.num_local_experts <= kMostExperts / m.num_hidden_layers, shown, ": its config has ",
                           m.num_hidden_layers, " layers with ", m.num_local_experts, " experts each", kConfigFix);
}

/// What is wrong with the tensors, as parameters of the model and their states.
std::vector<std::string> tensor_faults(const Manifest& manifest, const ModelConfig& m) {
  std::vector<std::string> faults;
  std::map<std::string, Shape> parameters;
  for (const Parameter& parameter : all_parameters(m)) {
    if (find(manifest, parameter.name, kWeight) == nullptr)
      faults.push_back(text(parameter.name, ": its weight is missing"));
    parameters.emplace(parameter.name, parameter.spec.shape);
  }
  for (const StoredTensor& tensor : manifest.tensors) {
    if (is_of_rank(tensor.kind)) continue;
    const auto parameter = parameters.find(tensor.name);
    if (parameter == parameters.end())
      faults.push_back(text(files::shown_name(tensor.name), ": is not a parameter of the model"));
    else if (parameter->second != tensor.shape)
      faults.push_back(text(tensor.name, " ", files::shown_name(tensor.kind), ": has the shape ",
                            tuple_text(tensor.shape), ", the parameter ", tuple_text(parameter->second)));
  }
  return faults;
}

void check_tensors(const Manifest& manifest, const ModelConfig& m, const std::string& shown) {
  const std::vector<std::string> faults = tensor_faults(manifest, m);
  require<CheckpointError>(faults.empty(), shown, ": its tensors are not those of the ", m.model_type,
                           " model in its config", listed(faults), kConfigFix);
}

}  // namespace

config::LoadedConfig stored_config(const Manifest& manifest, const std::string& shown) {
  config::LoadedConfig loaded;
  for (const config::Field& field : config::fields(loaded.config)) {
    const auto stored = manifest.config.find(field.key);
    const bool wanted = field.key.starts_with("model.") || field.key.starts_with("parallelism.");
    if (!wanted || stored == manifest.config.end()) continue;
    const std::string fault = why_not_assigned(field, stored->second);
    require<CheckpointError>(fault.empty() || field.key != "model.model_type", shown,
                             ": its config has model.model_type = ", files::shown_text(stored->second.substr(0, 100)),
                             ": this program has no such family\n  fix: the program that has registered it",
                             " reads it, and trains from it (trireme::register_family)");
    require<CheckpointError>(fault.empty(), shown, ": its config has ", field.key, " = ",
                             files::shown_text(stored->second.substr(0, 100)), ": ", fault, kConfigFix);
  }
  ParallelismConfig& p = loaded.config.parallelism;
  // A schedule of the run's own is a file that may be gone, and the slices of the tensors do not depend on it.
  if (!p.pp_schedule_file.empty()) p.stages.clear();
  p.pp_schedule_file.clear();
  if (const auto dp = manifest.layout.find("dp"); p.dp < 1 && dp != manifest.layout.end()) p.dp = dp->second;
  const ModelConfig& m = loaded.config.model;
  try {
    check_model_sizes(m, manifest, shown);
    require<ConfigError>(p.dp >= 1, "parallelism.dp = ", p.dp);
    throw_if_any(config::validate_layout(loaded));
    check_tensors(manifest, m, shown);
  } catch (const ConfigError& error) {
    throw CheckpointError(text(shown, ": its config is not valid: ", error.what()));
  }
  return loaded;
}

}  // namespace trireme::checkpoint
