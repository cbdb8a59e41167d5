#include "trireme/config/import.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "trireme/base/error.hpp"
#include "trireme/config/convert.hpp"
#include "trireme/config/fields.hpp"
#include "trireme/config/hf_config.hpp"
#include "trireme/config/json_file.hpp"
#include "trireme/config/megatron_script.hpp"
#include "trireme/config/parse.hpp"
#include "trireme/config/show.hpp"
#include "trireme/config/toml_file.hpp"
#include "trireme/config/yaml_file.hpp"

namespace trireme {
namespace {

std::string ending_of(const std::string& file) {
  const std::size_t dot = file.rfind('.');
  return dot == std::string::npos || file.find('/', dot) != std::string::npos ? "" : file.substr(dot);
}

Settings read(Framework from, const std::string& file, const std::string& contents) {
  switch (from) {
    case Framework::nanotron: return parse_yaml(file, contents);
    case Framework::torchtitan: return parse_toml(file, contents);
    case Framework::megatron: return parse_megatron_script(file, contents);
    default: return parse_json(file, contents);
  }
}

/// torchtitan's flavors are our presets.
const std::map<std::string, std::string>& torchtitan_models() {
  static const std::map<std::string, std::string> presets = {{"llama3/8B", "llama3-8b"},
                                                             {"llama3/70B", "llama3-70b"},
                                                             {"llama3/405B", "llama3-405b"},
                                                             {"qwen3/0.6B", "qwen3-0.6b"}};
  return presets;
}

class Importer {
 public:
  Importer(Framework from, const std::string& file, const std::string& contents)
      : from_(from), file_(file), contents_(contents) {}

  Imported run() {
    if (from_ == Framework::hf_config) {
      HfConfig hf = parse_hf_config(file_, contents_);
      taken_ = std::move(hf.settings);
      for (const std::string& key : hf.ignored) notes_.push_back(key + ": says nothing about the model's shape");
    } else {
      for (const Setting& s : read(from_, file_, contents_)) take(s);
      if (from_ == Framework::torchtitan) take_flavor();
      if (from_ == Framework::megatron) finish_megatron();
    }
    LoadedConfig loaded = load_settings(file_, contents_, taken_, {});
    throw_if_any(loaded.violations);
    return {from_, to_toml(loaded), std::move(notes_)};
  }

 private:
  void take(const Setting& s) {
    if (std::holds_alternative<Nothing>(s.value.data)) return;  // null, an empty table: nothing was said
    if (from_ == Framework::deepspeed && plain_text(s.value) == "auto") {
      note(s, "\"auto\" is filled in by the caller");
    } else if (s.path == "model.name" || s.path == "model.flavor") {
      flavor_[s.path] = s;
    } else if (take_folder_map(s)) {
      // nanotron's older spelling of weights
    } else if (from_ == Framework::torchtitan && s.path == "training.global_batch_size" &&
               s.value == Value{std::int64_t{-1}}) {
      // torchtitan's "derive it"
    } else if (is_known(s.path)) {
      taken_.push_back(s);
    } else {
      note(s, "no counterpart");
    }
  }

  /// dataset_folder: {path: weight}
  bool take_folder_map(const Setting& s) {
    constexpr std::string_view kMap = ".data.dataset.dataset_folder.";
    const std::size_t at = s.path.find(kMap);
    if (!s.path.starts_with("data_stages.") || at == std::string::npos) return false;
    const std::string stage = s.path.substr(12, at - 12);
    const int j = sources_[stage]++;
    const std::string source = text("data.", stage, ".sources.", j);
    taken_.push_back({source + ".path", {s.path.substr(at + kMap.size())}, s.place});
    taken_.push_back({source + ".weight", s.value, s.place});
    return true;
  }

  bool is_known(const std::string& path) const {
    const std::vector<AliasMatch> matches = find_aliases(path);
    // DeepSpeed and the HF Trainer share a few words, so the other's count as well.
    const auto json = [](Framework f) { return f == Framework::deepspeed || f == Framework::hf_trainer; };
    if (std::ranges::any_of(matches, [&](const AliasMatch& m) {
          return m.alias->framework == from_ || (json(from_) && json(m.alias->framework));
        }))
      return true;
    Config config;
    const std::vector<Field> all = fields(config);
    const bool ours = std::ranges::find(all, path, &Field::key) != all.end();
    return ours && (from_ == Framework::nanotron || from_ == Framework::torchtitan);  // they share our sections' names
  }

  void take_flavor() {
    if (flavor_.empty()) return;
    const Setting& s = flavor_.begin()->second;
    const std::string model = plain_text(flavor_["model.name"].value) + "/" + plain_text(flavor_["model.flavor"].value);
    const auto preset = torchtitan_models().find(model);
    if (preset == torchtitan_models().end()) {
      notes_.push_back(text("model ", model, ": no preset of that name; set the sizes under [model]"));
    } else {
      taken_.push_back({"model.preset", {preset->second}, s.place});
    }
  }

  /// What Megatron means when a flag is absent, where our default differs.
  void finish_megatron() {
    const auto given = [&](const char* flag) {
      return std::ranges::find(taken_, flag, &Setting::path) != taken_.end();
    };
    const Place place{file_, 0, 0, ""};
    if (!given("--sequence-parallel")) taken_.push_back({"parallelism.sequence_parallel", {false}, place});
    if (!given("--use-distributed-optimizer") && !given("--use-megatron-fsdp"))
      taken_.push_back({"parallelism.zero", {std::int64_t{0}}, place});
    if (given("--hidden-size") && !given("--untie-embeddings-and-output-weights"))
      taken_.push_back({"model.tie_word_embeddings", {true}, place});
    if (given("--num-virtual-stages-per-pipeline-rank"))
      taken_.push_back({"parallelism.pp_schedule", {"interleaved-1f1b"}, place});
    const auto swiglu = std::ranges::find_if(notes_, [](const std::string& n) { return n.starts_with("--swiglu"); });
    if (given("--hidden-size") && swiglu == notes_.end()) {
      taken_.push_back({"model.model_type", {"gpt2"}, place});
      taken_.push_back({"model.hidden_act", {"gelu"}, place});
    } else if (swiglu != notes_.end()) {
      notes_.erase(swiglu);  // llama, our default family
    }
  }

  void note(const Setting& s, const std::string& why) {
    notes_.push_back(text(s.path, str(s.value).empty() ? "" : " = " + str(s.value),
                          s.place.line > 0 ? text(" (line ", s.place.line, ")") : "", ": ", why));
  }

  Framework from_;
  const std::string& file_;
  const std::string& contents_;
  Settings taken_;
  std::vector<std::string> notes_;
  std::map<std::string, Setting> flavor_;
  std::map<std::string, int> sources_;  // by data stage: sources taken from a map
};

}  // namespace

Framework recognise(const std::string& file, const std::string& contents) {
  const std::string ending = ending_of(file);
  if (ending == ".yaml" || ending == ".yml") return Framework::nanotron;
  if (ending == ".toml") return Framework::torchtitan;
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
                         " is of no trainer that we know\n  fix: name it: --from nanotron | torchtitan | megatron | "
                         "deepspeed | trainer | hf"));
}

Imported import_config(const std::string& file, const std::string& contents, std::optional<Framework> from) {
  return Importer(from ? *from : recognise(file, contents), file, contents).run();
}

std::optional<Framework> framework_by_name(const std::string& name) {
  static const std::map<std::string, Framework> names = {
      {"nanotron", Framework::nanotron},   {"torchtitan", Framework::torchtitan}, {"megatron", Framework::megatron},
      {"deepspeed", Framework::deepspeed}, {"trainer", Framework::hf_trainer},    {"hf", Framework::hf_config}};
  const auto it = names.find(name);
  return it == names.end() ? std::nullopt : std::optional(it->second);
}

}  // namespace trireme
