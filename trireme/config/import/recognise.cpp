#include "trireme/config/import/recognise.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "trireme/base/error.hpp"
#include "trireme/config/schema/fields.hpp"
#include "trireme/config/settings/json_file.hpp"
#include "trireme/config/settings/toml_file.hpp"

namespace trireme::config {
namespace {

std::string ending_of(const std::string& file) {
  const std::size_t dot = file.rfind('.');
  return dot == std::string::npos || file.find('/', dot) != std::string::npos ? "" : file.substr(dot);
}

/// Whether a TOML file is ours and not torchtitan's. They have keys in common: a key that only we have decides, unless
/// there is one that only torchtitan has.
bool is_ours(const Settings& settings) {
  bool ours = false;
  for (const Setting& s : settings) {
    const std::vector<AliasMatch> matches = find_aliases(s.path);
    const bool theirs = std::ranges::any_of(
        matches, [](const AliasMatch& match) { return match.alias->framework == Framework::torchtitan; });
    if (theirs || s.path == "model.name" || s.path == "model.flavor" || s.path.starts_with("job.")) return false;
    const bool only_ours = s.path.starts_with("data.") ||
                           (is_our_key(s.path) && !s.path.starts_with("training.s") &&
                            !s.path.starts_with("optimizer.") && !s.path.starts_with("lr_scheduler.") &&
                            !s.path.starts_with("checkpoint.") && !s.path.starts_with("activation_checkpoint."));
    ours = ours || only_ours;
  }
  return ours;
}

}  // namespace

bool is_our_key(const std::string& path) {
  static const std::set<std::string> ours = [] {
    Config config;
    std::set<std::string> keys;
    for (const Field& field : fields(config)) keys.insert(field.key);
    return keys;
  }();
  return ours.contains(path);
}

Framework recognise(const std::string& file, const std::string& contents) {
  const std::string ending = ending_of(file);
  if (ending == ".yaml" || ending == ".yml") return Framework::nanotron;
  if (ending == ".toml") {
    require<ConfigError>(!is_ours(parse_toml(file, contents)), file,
                         " is already a trireme config: there is nothing to translate\n  fix: use it as it is, for "
                         "instance trireme config check ",
                         file, "; or name its trainer: --from torchtitan");
    return Framework::torchtitan;
  }
  if (ending == ".json") {
    const Settings settings = parse_json(file, contents);
    const auto has = [&](std::string_view word) {
      return std::ranges::any_of(
          settings, [&](const Setting& s) { return s.path == word || s.path.starts_with(std::string(word) + "."); });
    };
    if (has("model_type")) return Framework::hf_config;
    if (has("zero_optimization") || has("train_batch_size") || has("train_micro_batch_size_per_gpu"))
      return Framework::deepspeed;
    if (has("per_device_train_batch_size") || has("output_dir")) return Framework::hf_trainer;
  } else if (contents.find("--") != std::string::npos) {
    return Framework::megatron;
  }
  throw ConfigError(text(file,
                         ": config format not recognized\n  fix: name it: --from nanotron | torchtitan | megatron | "
                         "deepspeed | trainer | hf"));
}

std::optional<Framework> framework_by_name(const std::string& name) {
  static const std::map<std::string, Framework> names = {
      {"nanotron", Framework::nanotron},   {"torchtitan", Framework::torchtitan}, {"megatron", Framework::megatron},
      {"deepspeed", Framework::deepspeed}, {"trainer", Framework::hf_trainer},    {"hf", Framework::hf_config}};
  const auto it = names.find(name);
  return it == names.end() ? std::nullopt : std::optional(it->second);
}

}  // namespace trireme::config
