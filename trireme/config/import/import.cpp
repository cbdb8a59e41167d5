#include "trireme/config/import/import.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>

#include "trireme/base/error.hpp"
#include "trireme/base/name_pattern.hpp"
#include "trireme/config/import/assumed.hpp"
#include "trireme/config/import/harmless.hpp"
#include "trireme/config/import/import_draft.hpp"
#include "trireme/config/import/megatron_family.hpp"
#include "trireme/config/import/megatron_script.hpp"
#include "trireme/config/import/padded_vocabulary.hpp"
#include "trireme/config/import/torchtitan_parts.hpp"
#include "trireme/config/import/trainer_schedule.hpp"
#include "trireme/config/read/parse.hpp"
#include "trireme/config/read/show.hpp"
#include "trireme/config/settings/convert.hpp"
#include "trireme/config/settings/json_file.hpp"
#include "trireme/config/settings/toml_file.hpp"
#include "trireme/config/settings/yaml_file.hpp"
#include "trireme/config/translate/hf_config.hpp"

namespace trireme::config {
namespace {

Settings read(Framework from, const std::string& file, const std::string& contents) {
  switch (from) {
    case Framework::nanotron: return parse_yaml(file, contents);
    case Framework::torchtitan: return parse_toml(file, contents);
    case Framework::megatron: return parse_megatron_script(file, contents);
    case Framework::deepspeed:
    case Framework::hf_trainer:
    case Framework::hf_config: break;
  }
  return parse_json(file, contents);
}

class Importer {
 public:
  Importer(Framework from, const std::string& file, const std::string& contents)
      : contents_(contents), draft_{.from = from, .file = file} {}

  Imported run() {
    if (draft_.from == Framework::hf_config) {
      HfConfig hf = parse_hf_config(draft_.file, contents_);
      draft_.taken = std::move(hf.settings);
      for (const std::string& key : hf.ignored)
        draft_.harmless.push_back(shortened(key) + ": does not describe the model's shape");
    } else {
      for (const Setting& s : read_all()) take(s);
      if (draft_.from == Framework::torchtitan) torchtitan_.add_model(draft_);
      if (draft_.from == Framework::torchtitan) torchtitan_.add_initial_weights(draft_);
      if (draft_.from == Framework::torchtitan) torchtitan_.add_float8(draft_);
      if (draft_.from == Framework::megatron) add_megatron_family(draft_);
      add_default_padding(draft_);
    }
    keep_one_total();
    LoadedConfig loaded = load();
    pad_given_vocabulary(draft_, loaded.config.model);
    note_assumed_steps(loaded);
    add_assumed(loaded);
    add_sources(loaded);
    if (draft_.from == Framework::torchtitan) torchtitan_.add_validation(draft_, loaded.config);
    if (draft_.from == Framework::torchtitan) torchtitan_.add_chunks(draft_, loaded.config);
    loaded = load();
    complete_schedule(draft_.from, draft_.taken, loaded, {automatic_, total_});
    loaded = load();
    note_no_decay(loaded);
    if (loaded.config.model.hidden_size == 0)
      draft_.notes.push_back("no model in this file: set model.preset or its sizes");
    return {draft_.from, to_toml(loaded), std::move(draft_.notes), std::move(draft_.harmless)};
  }

 private:
  /// The HF Trainer's "deepspeed" is a second file, or holds its settings; the Trainer's own come first.
  Settings read_all() {
    Settings all = read(draft_.from, draft_.file, contents_);
    if (draft_.from != Framework::hf_trainer) return all;
    Settings both, deepspeed;
    for (Setting& s : all) {
      if (s.path == "deepspeed") {
        const std::filesystem::path path = std::filesystem::path(draft_.file).parent_path() / plain_text(s.value);
        deepspeed = parse_json(path.string(), read_config_file(path.string()));
      } else if (s.path.starts_with("deepspeed.")) {
        s.path.erase(0, 10);
        deepspeed.push_back(std::move(s));
      } else {
        both.push_back(std::move(s));
      }
    }
    std::ranges::move(deepspeed, std::back_inserter(both));
    return both;
  }

  void take(const Setting& s) {
    if (std::holds_alternative<Nothing>(s.value.data)) return;  // null or an empty table: no value
    const bool json = draft_.from == Framework::deepspeed || draft_.from == Framework::hf_trainer;
    if (json && plain_text(s.value) == "auto") {
      automatic_.insert(s.path);
      if (draft_.from == Framework::hf_trainer) return;  // the HF Trainer fills it in from its own arguments
      const std::vector<AliasMatch> matches = find_aliases(s.path);
      draft_.note(s, "\"auto\" is filled in by the caller", matches.empty());
      for (const AliasMatch& match : matches) draft_.open.insert(match.key);
    } else if (draft_.from == Framework::megatron && needs_shell(s)) {
      const std::vector<AliasMatch> matches = find_aliases(s.path);
      draft_.note(s, "only a shell knows its value", matches.empty() && changes_nothing(draft_.from, s));
      for (const AliasMatch& match : matches) draft_.open.insert(match.key);
    } else if (draft_.from == Framework::torchtitan && torchtitan_.take(s)) {
      // translated together with others
    } else if (take_folder_map(s)) {
      // nanotron's older key for weights
    } else if (draft_.from == Framework::hf_trainer && s.path == "max_steps" && s.value == Value{std::int64_t{-1}}) {
      // the HF Trainer's value for "by epochs"
    } else if (is_known(s.path)) {
      if (!is_repeated(s)) draft_.taken.push_back(s.path == kNoDecay ? without_bad_expressions(s) : s);
    } else if (s.path == "model.model_config.initializer_range") {
      draft_.note(s, "nanotron draws initial weights by model.init_method.std", true);
    } else {
      draft_.note(s, "no counterpart", changes_nothing(draft_.from, s));
    }
  }

  /// DeepSpeed's file and the HF Trainer's arguments may say the same thing twice. They print at their own intervals.
  bool is_repeated(const Setting& s) const {
    const std::vector<AliasMatch> matches = find_aliases(s.path);
    if (draft_.from != Framework::hf_trainer || matches.empty()) return false;
    const std::string& key = matches.front().key;
    return std::ranges::any_of(draft_.taken, [&](const Setting& other) {
      const std::vector<AliasMatch> others = find_aliases(other.path);
      return !others.empty() && others.front().key == key && (other.value == s.value || key.starts_with("metrics."));
    });
  }

  /// DeepSpeed's total_num_steps is of its schedule; beside max_steps it is not of the run.
  void keep_one_total() {
    constexpr const char* kTotal = "scheduler.params.total_num_steps";
    const auto total = std::ranges::find(draft_.taken, kTotal, &Setting::path);
    if (total == draft_.taken.end() ||
        std::ranges::find(draft_.taken, "max_steps", &Setting::path) == draft_.taken.end())
      return;
    const Value steps = total->value;
    draft_.taken.erase(total);
    total_ = steps;
  }

  /// dataset_folder: {path: weight}
  bool take_folder_map(const Setting& s) {
    constexpr std::string_view kMap = ".data.dataset.dataset_folder.";
    const std::size_t at = s.path.find(kMap);
    if (!s.path.starts_with("data_stages.") || at == std::string::npos) return false;
    const std::string stage = s.path.substr(12, at - 12);
    const int j = sources_[stage]++;
    const std::string source = text("data.", stage, ".sources.", j);
    draft_.taken.push_back({source + ".path", {s.path.substr(at + kMap.size())}, s.place});
    draft_.taken.push_back({source + ".weight", s.value, s.place});
    return true;
  }

  bool is_known(const std::string& path) const {
    const std::vector<AliasMatch> matches = find_aliases(path);
    // DeepSpeed and the HF Trainer share some keys, so both are accepted.
    const auto json = [](Framework f) { return f == Framework::deepspeed || f == Framework::hf_trainer; };
    if (std::ranges::any_of(matches, [&](const AliasMatch& m) {
          return m.alias->framework == draft_.from || (json(draft_.from) && json(m.alias->framework));
        }))
      return true;
    // They have some section names in common with ours.
    return (draft_.from == Framework::nanotron || draft_.from == Framework::torchtitan) && is_our_key(path);
  }

  /// The HF Trainer counts epochs, which only the data knows; a warm-up that is a share of the run needs steps.
  void note_assumed_steps(const LoadedConfig& loaded) {
    if (draft_.from != Framework::hf_trainer || loaded.is_given("training.steps")) return;
    for (const Setting& s : draft_.taken) {
      const double share = plain_number(s.value).value_or(0);
      if ((s.path != "warmup_ratio" && s.path != "warmup_steps") || share <= 0 || share >= 1) continue;
      draft_.note(s, text("the number of steps is not known: ", loaded.config.training.steps,
                          " are assumed, and the warm-up is ", loaded.config.lr_scheduler.warmup_steps,
                          " of them; set training.steps, and lr_scheduler.warmup_steps to ", brief(s.value), " of it"));
    }
  }

  /// Python's regular expressions have a syntax that ours lack, such as (?i).
  Setting without_bad_expressions(Setting s) {
    auto* list = std::get_if<Values>(&s.value.data);
    if (list == nullptr) return s;
    std::erase_if(*list, [&](const Value& expression) {
      try {
        checked_regex(plain_text(expression));
        return false;
      } catch (const ConfigError& e) {
        draft_.notes.push_back(
            text(s.path, ": ", e.what(), "; add the parameters that it matches to optimizer.no_decay"));
        return true;
      }
    });
    return s;
  }

  void note_no_decay(const LoadedConfig& loaded) {
    const auto s = std::ranges::find(draft_.taken, kNoDecay, &Setting::path);
    if (s == draft_.taken.end() || loaded.config.model.hidden_size == 0) return;
    for (const std::string& word : loaded.config.optimizer.no_decay)
      if (word.starts_with("re:"))
        draft_.notes.push_back(text(kNoDecay, ": \"", word.substr(3), "\" matches no parameter of nanotron's"));
  }

  LoadedConfig load() {
    LoadedConfig loaded = load_settings(draft_.file, contents_, draft_.taken, {});
    while (leave_out(loaded.violations)) loaded = load_settings(draft_.file, contents_, draft_.taken, {});
    throw_if_any(loaded.violations);
    return loaded;
  }

  /// Settings whose values have no counterpart become notes; returns whether there were any.
  bool leave_out(const std::vector<Violation>& violations) {
    bool any = false;
    for (const Violation& v : violations) {
      const auto s = std::ranges::find(draft_.taken, v.foreign, &Setting::path);
      if (v.foreign.empty() || s == draft_.taken.end()) continue;
      const std::vector<AliasMatch> matches = find_aliases(s->path);
      draft_.notes.push_back(text(v.headline, s->place.line > 0 ? text(" (line ", s->place.line, ")") : "",
                                  matches.empty() ? "" : "; set " + matches.front().key));
      // That trainer's default is not what the file says, either.
      for (const AliasMatch& match : matches) draft_.open.insert(match.key);
      draft_.taken.erase(s);
      any = true;
    }
    return any;
  }

  void add_assumed(const LoadedConfig& loaded) {
    for (const auto& [key, value] : assumed(draft_.from)) {
      if (loaded.is_given(key) || draft_.open.contains(key)) continue;
      if (key.starts_with("model.") && key != "model.dtype" && loaded.config.model.hidden_size == 0) continue;
      // A DeepSpeed file without an optimizer leaves it and its schedule to the user's code.
      const bool in_code = draft_.from == Framework::deepspeed && !loaded.is_given("optimizer.name");
      if (in_code && (key.starts_with("optimizer.") || key.starts_with("lr_scheduler."))) continue;
      draft_.add(key, value);
    }
  }

  /// A stage whose data cannot be imported gets random tokens, and a note.
  void add_sources(const LoadedConfig& loaded) {
    for (std::size_t i = 0; i < loaded.config.data.size(); ++i) {
      if (!loaded.config.data[i].sources.empty()) continue;
      draft_.add(text("data.", i, ".sources.0.path"), {"synthetic"});
      draft_.notes.push_back(text("data stage ", i, " has no token files: \"synthetic\" is used instead"));
    }
  }

  static constexpr const char* kNoDecay = "optimizer.weight_decay_exclude_named_params";

  const std::string& contents_;
  ImportDraft draft_;
  TorchtitanParts torchtitan_;
  std::map<std::string, int> sources_;  // by data stage: number of sources from a map
  std::set<std::string> automatic_;     // foreign keys that are "auto"
  std::optional<Value> total_;          // DeepSpeed's total_num_steps, if the run has another number
};

}  // namespace

Imported import_config(const std::string& file, const std::string& contents, std::optional<Framework> from) {
  return Importer(from ? *from : recognise(file, contents), file, contents).run();
}

}  // namespace trireme::config
