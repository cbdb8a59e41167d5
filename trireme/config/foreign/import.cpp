#include "trireme/config/foreign/import.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>

#include "trireme/base/error.hpp"
#include "trireme/base/name_pattern.hpp"
#include "trireme/config/foreign/assumed.hpp"
#include "trireme/config/foreign/harmless.hpp"
#include "trireme/config/foreign/hf_config.hpp"
#include "trireme/config/foreign/megatron_script.hpp"
#include "trireme/config/foreign/trainer_schedule.hpp"
#include "trireme/config/read/convert.hpp"
#include "trireme/config/read/json_file.hpp"
#include "trireme/config/read/parse.hpp"
#include "trireme/config/read/show.hpp"
#include "trireme/config/read/toml_file.hpp"
#include "trireme/config/read/yaml_file.hpp"
#include "trireme/config/schema/fields.hpp"
#include "trireme/config/schema/presets.hpp"

namespace trireme::config {
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
    case Framework::deepspeed:
    case Framework::hf_trainer:
    case Framework::hf_config: break;
  }
  return parse_json(file, contents);
}

const std::set<std::string>& our_keys() {
  static const std::set<std::string> ours = [] {
    Config config;
    std::set<std::string> keys;
    for (const Field& field : fields(config)) keys.insert(field.key);
    return keys;
  }();
  return ours;
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
                           (our_keys().contains(s.path) && !s.path.starts_with("training.s") &&
                            !s.path.starts_with("optimizer.") && !s.path.starts_with("lr_scheduler.") &&
                            !s.path.starts_with("checkpoint.") && !s.path.starts_with("activation_checkpoint."));
    ours = ours || only_ours;
  }
  return ours;
}

class Importer {
 public:
  Importer(Framework from, const std::string& file, const std::string& contents)
      : from_(from), file_(file), contents_(contents) {}

  Imported run() {
    if (from_ == Framework::hf_config) {
      HfConfig hf = parse_hf_config(file_, contents_);
      taken_ = std::move(hf.settings);
      for (const std::string& key : hf.ignored)
        harmless_.push_back(shortened(key) + ": says nothing about the model's shape");
    } else {
      for (const Setting& s : read_all()) take(s);
      if (from_ == Framework::torchtitan) take_flavor();
      if (from_ == Framework::torchtitan) take_initial_weights();
      if (from_ == Framework::megatron) finish_megatron();
      pad_by_default("--hidden-size", "--make-vocab-size-divisible-by", 128);
      pad_by_default("model.model_config.hidden_size", "model.make_vocab_size_divisible_by", 1);
    }
    keep_one_total();
    LoadedConfig loaded = load();
    pad_vocabulary(loaded);
    note_assumed_steps(loaded);
    add_assumed(loaded);
    add_sources(loaded);
    add_validation(loaded);
    loaded = load();
    complete_schedule(from_, taken_, loaded, {automatic_, total_});
    loaded = load();
    note_no_decay(loaded);
    if (loaded.config.model.hidden_size == 0) notes_.push_back("no model in this file: set model.preset or its sizes");
    return {from_, to_toml(loaded), std::move(notes_), std::move(harmless_)};
  }

 private:
  /// The HF Trainer's "deepspeed" is a second file, or holds its settings; the Trainer's own come first.
  Settings read_all() {
    Settings all = read(from_, file_, contents_);
    if (from_ != Framework::hf_trainer) return all;
    Settings both, deepspeed;
    for (Setting& s : all) {
      if (s.path == "deepspeed") {
        const std::filesystem::path path = std::filesystem::path(file_).parent_path() / plain_text(s.value);
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
    const bool json = from_ == Framework::deepspeed || from_ == Framework::hf_trainer;
    if (json && plain_text(s.value) == "auto") {
      automatic_.insert(s.path);
      if (from_ == Framework::hf_trainer) return;  // the HF Trainer fills it in from its own arguments
      const std::vector<AliasMatch> matches = find_aliases(s.path);
      note(s, "\"auto\" is filled in by the caller", matches.empty());
      for (const AliasMatch& match : matches) open_.insert(match.key);
    } else if (from_ == Framework::megatron && needs_shell(s)) {
      const std::vector<AliasMatch> matches = find_aliases(s.path);
      note(s, "only a shell knows its value", matches.empty() && changes_nothing(from_, s));
      for (const AliasMatch& match : matches) open_.insert(match.key);
    } else if (from_ == Framework::torchtitan && (s.path == "model.name" || s.path == "model.flavor")) {
      flavor_[s.path] = s;
    } else if (from_ == Framework::torchtitan && s.path.starts_with("validation.")) {
      validation_[leaf_of(s.path)] = s;
    } else if (from_ == Framework::torchtitan && s.path == "checkpoint.initial_load_path") {
      initial_weights_ = s;
    } else if (take_folder_map(s)) {
      // nanotron's older key for weights
    } else if (from_ == Framework::torchtitan && s.path == "training.global_batch_size" &&
               s.value == Value{std::int64_t{-1}}) {
      // torchtitan's value for "derive it"
    } else if (from_ == Framework::hf_trainer && s.path == "max_steps" && s.value == Value{std::int64_t{-1}}) {
      // the HF Trainer's value for "by epochs"
    } else if (is_known(s.path)) {
      if (!is_repeated(s)) taken_.push_back(s.path == kNoDecay ? without_bad_expressions(s) : s);
    } else if (s.path == "model.model_config.initializer_range") {
      note(s, "nanotron draws initial weights by model.init_method.std", true);
    } else {
      note(s, "no counterpart", changes_nothing(from_, s));
      if (from_ == Framework::torchtitan && s.path.starts_with("checkpoint.")) checkpoint_[leaf_of(s.path)] = s.value;
    }
  }

  /// DeepSpeed's file and the HF Trainer's arguments may say the same thing twice. They print at their own intervals.
  bool is_repeated(const Setting& s) const {
    const std::vector<AliasMatch> matches = find_aliases(s.path);
    if (from_ != Framework::hf_trainer || matches.empty()) return false;
    const std::string& key = matches.front().key;
    return std::ranges::any_of(taken_, [&](const Setting& other) {
      const std::vector<AliasMatch> others = find_aliases(other.path);
      return !others.empty() && others.front().key == key && (other.value == s.value || key.starts_with("metrics."));
    });
  }

  /// DeepSpeed's total_num_steps is of its schedule; beside max_steps it is not of the run.
  void keep_one_total() {
    constexpr const char* kTotal = "scheduler.params.total_num_steps";
    const auto total = std::ranges::find(taken_, kTotal, &Setting::path);
    if (total == taken_.end() || std::ranges::find(taken_, "max_steps", &Setting::path) == taken_.end()) return;
    const Value steps = total->value;
    taken_.erase(total);
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
    taken_.push_back({source + ".path", {s.path.substr(at + kMap.size())}, s.place});
    taken_.push_back({source + ".weight", s.value, s.place});
    return true;
  }

  bool is_known(const std::string& path) const {
    const std::vector<AliasMatch> matches = find_aliases(path);
    // DeepSpeed and the HF Trainer share some keys, so both are accepted.
    const auto json = [](Framework f) { return f == Framework::deepspeed || f == Framework::hf_trainer; };
    if (std::ranges::any_of(matches, [&](const AliasMatch& m) {
          return m.alias->framework == from_ || (json(from_) && json(m.alias->framework));
        }))
      return true;
    // They have some section names in common with ours.
    return (from_ == Framework::nanotron || from_ == Framework::torchtitan) && our_keys().contains(path);
  }

  void take_flavor() {
    if (const auto dataset = std::ranges::find(taken_, "training.dataset", &Setting::path);
        dataset != taken_.end() && std::ranges::find(taken_, "training.dataset_path", &Setting::path) == taken_.end())
      note(*dataset, "a dataset by name: prepare its token files, and set data.sources");
    if (flavor_.empty()) return;
    const Setting& s = flavor_.begin()->second;
    const std::string name = plain_text(flavor_["model.name"].value),
                      flavor = plain_text(flavor_["model.flavor"].value);
    const std::string preset = torchtitan_preset(name, flavor);
    if (preset.empty())
      notes_.push_back(text("model ", name, "/", flavor, ": no preset of that name; set the sizes under [model]"));
    else
      taken_.push_back({"model.preset", {preset}, s.place});
  }

  /// torchtitan begins with weights only if checkpoints are on. Those of Hugging Face are ours, too.
  void take_initial_weights() {
    if (!initial_weights_ || plain_text(initial_weights_->value).empty()) return;
    const Setting& s = *initial_weights_;
    const auto is = [&](const char* key, bool on) {
      const auto it = checkpoint_.find(key);
      return it != checkpoint_.end() && it->second == Value{on};
    };
    const bool off = is("enable", false) || is("enable_checkpoint", false);
    if (off) {
      note(s, "checkpoint.enable is false, so torchtitan loads no weights; to load them, set model.init");
    } else if (!is("initial_load_in_hf", true)) {
      note(s,
           "a checkpoint of torchtitan cannot be read here: the run would begin with random weights; convert it to "
           "Hugging Face's format, and set model.init = \"hf:FOLDER\"");
    } else {
      taken_.push_back({"model.init", {"hf:" + plain_text(s.value)}, s.place});
      if (!is("enable", true) && !is("enable_checkpoint", true))
        note(s,
             "torchtitan loads it only with checkpoint.enable = true, which is not in this file; here model.init "
             "loads it");
    }
  }

  /// The family implied by Megatron's flags: llama with SwiGLU, else GPT-2.
  void finish_megatron() {
    const auto find = [&](const char* flag) { return std::ranges::find(taken_, flag, &Setting::path); };
    if (const auto events = find("--tensorboard-dir"); events != taken_.end() && find("--save") != taken_.end())
      note(*events, "event files stand in the run's folder");
    if (find("--hidden-size") == taken_.end()) return;
    const Place place{file_, 0, 0, ""};
    const bool gated = forget_note("--swiglu");
    if (gated) {
      // Megatron's defaults are GPT-2's; our llama differs from them, so a note reports flags that are missing.
      expect_flag("--normalization = RMSNorm", "Megatron would take LayerNorm, our llama has RMSNorm");
      // --use-rotary-position-embeddings is the older spelling.
      if (!forget_note("--use-rotary-position-embeddings"))
        expect_flag("--position-embedding-type = rope", "Megatron would learn positions, our llama has RoPE");
      else
        forget_note("--position-embedding-type = rope");
      expect_flag("--disable-bias-linear", "Megatron would have biases, our llama has none");
      if (find("--ffn-hidden-size") == taken_.end()) {
        // Two thirds of 4 h, rounded to a multiple of 64.
        const double hidden = plain_number(find("--hidden-size")->value).value_or(0);
        taken_.push_back({"model.intermediate_size", {std::floor(hidden * 8 / 3 / 64) * 64}, place});
      }
    } else {
      forget_note("--normalization = LayerNorm");
      forget_note("--position-embedding-type = learned_absolute");
      taken_.push_back({"model.model_type", {"gpt2"}, place});
      taken_.push_back({"model.hidden_act", {"gelu"}, place});
    }
    if (find("--num-query-groups") != taken_.end()) forget_note("--group-query-attention");
  }

  /// No note for a flag that our family implies anyway, but one if it is missing.
  void expect_flag(const std::string& flag, const std::string& otherwise) {
    if (!forget_note(flag)) notes_.push_back(text("--swiglu without ", flag, ": ", otherwise));
  }

  /// Removes a note with this beginning; returns whether there was one.
  bool forget_note(const std::string& beginning) {
    const auto is_it = [&](const std::string& n) {
      return n.starts_with(beginning) && n.substr(beginning.size()).starts_with(" (line");
    };
    return std::erase_if(notes_, is_it) + std::erase_if(harmless_, is_it) > 0;
  }

  /// The vocabulary of a file with a model is padded there even if it does not say to what.
  void pad_by_default(const char* model, const char* multiple, std::int64_t standard) {
    const auto has = [&](const char* path) { return std::ranges::find(taken_, path, &Setting::path) != taken_.end(); };
    if (has(model) && !has(multiple) && !open_.contains("model.vocab_multiple"))
      taken_.push_back({multiple, {standard}, {file_, 0, 0, ""}});
  }

  /// Megatron and nanotron pad a vocabulary that is given; ours is padded only if it is the tokenizer's.
  void pad_vocabulary(const LoadedConfig& loaded) {
    const std::int64_t size = loaded.config.model.vocab_size, multiple = loaded.config.model.vocab_multiple;
    if (size % multiple == 0) return;
    for (Setting& s : taken_)
      if (s.path == "--vocab-size" || s.path == "model.model_config.vocab_size")
        s.value = {(size / multiple + 1) * multiple};
  }

  /// The HF Trainer counts epochs, which only the data knows; a warm-up that is a share of the run needs steps.
  void note_assumed_steps(const LoadedConfig& loaded) {
    if (from_ != Framework::hf_trainer || loaded.is_given("training.steps")) return;
    for (const Setting& s : taken_) {
      const double share = plain_number(s.value).value_or(0);
      if ((s.path != "warmup_ratio" && s.path != "warmup_steps") || share <= 0 || share >= 1) continue;
      note(s, text("the number of steps is not known: ", loaded.config.training.steps,
                   " are assumed, and the warm-up is ", loaded.config.lr_scheduler.warmup_steps,
                   " of them; set training.steps, and lr_scheduler.warmup_steps to ", brief(s.value), " of it"));
    }
  }

  /// torchtitan validates only if it is switched on; its steps are of every replica.
  void add_validation(const LoadedConfig& loaded) {
    const auto value = [&](const char* key) {
      const auto it = validation_.find(key);
      return it == validation_.end() ? nullptr : &it->second;
    };
    const Setting* on = value("enable") != nullptr ? value("enable") : value("enabled");
    const bool enabled = on != nullptr && on->value == Value{true};
    for (const auto& [key, s] : validation_)
      if (!enabled) harmless_.push_back(text(s.path, " = ", brief(s.value), ": validation is off"));
    if (!enabled) return;
    const auto number = [&](const char* key, double standard) {
      return value(key) != nullptr ? plain_number(value(key)->value).value_or(standard) : standard;
    };
    taken_.push_back({"validation.interval", {number("freq", 10)}, on->place});
    const Setting* source = value("dataset_path") != nullptr ? value("dataset_path") : value("dataset");
    const Value path = source != nullptr ? source->value : Value{"c4_validation"};
    taken_.push_back({"validation.sources", {Values{path}}, on->place});
    if (value("dataset_path") == nullptr)
      notes_.push_back(text("validation.dataset = ", brief(path),
                            ": a dataset by name; prepare its token files, and set "
                            "validation.sources"));
    if (const double steps = number("steps", -1); steps > 0) {
      const auto dp = static_cast<double>(loaded.config.parallelism.dp);
      if (dp > 0)
        taken_.push_back({"validation.samples", {steps * number("local_batch_size", 8) * dp}, on->place});
      else
        notes_.push_back(text("validation.steps = ", steps,
                              ": samples of each source depend on the number of ranks; set "
                              "validation.samples"));
    }
    if (const Setting* length = value("seq_len");
        length != nullptr && plain_number(length->value) != static_cast<double>(loaded.config.training.seq_len))
      note(*length, "validation has the length of training");
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
        notes_.push_back(text(s.path, ": ", e.what(), "; add the parameters that it matches to optimizer.no_decay"));
        return true;
      }
    });
    return s;
  }

  void note_no_decay(const LoadedConfig& loaded) {
    const auto s = std::ranges::find(taken_, kNoDecay, &Setting::path);
    if (s == taken_.end() || loaded.config.model.hidden_size == 0) return;
    for (const std::string& word : loaded.config.optimizer.no_decay)
      if (word.starts_with("re:"))
        notes_.push_back(text(kNoDecay, ": \"", word.substr(3), "\" matches no parameter of nanotron's"));
  }

  LoadedConfig load() {
    LoadedConfig loaded = load_settings(file_, contents_, taken_, {});
    while (leave_out(loaded.violations)) loaded = load_settings(file_, contents_, taken_, {});
    throw_if_any(loaded.violations);
    return loaded;
  }

  /// Settings whose values have no counterpart become notes; returns whether there were any.
  bool leave_out(const std::vector<Violation>& violations) {
    bool any = false;
    for (const Violation& v : violations) {
      const auto s = std::ranges::find(taken_, v.foreign, &Setting::path);
      if (v.foreign.empty() || s == taken_.end()) continue;
      const std::vector<AliasMatch> matches = find_aliases(s->path);
      notes_.push_back(text(v.headline, s->place.line > 0 ? text(" (line ", s->place.line, ")") : "",
                            matches.empty() ? "" : "; set " + matches.front().key));
      // That trainer's default is not what the file says, either.
      for (const AliasMatch& match : matches) open_.insert(match.key);
      taken_.erase(s);
      any = true;
    }
    return any;
  }

  void add_assumed(const LoadedConfig& loaded) {
    for (const auto& [key, value] : assumed(from_)) {
      if (loaded.is_given(key) || open_.contains(key)) continue;
      if (key.starts_with("model.") && key != "model.dtype" && loaded.config.model.hidden_size == 0) continue;
      // A DeepSpeed file without an optimizer leaves it and its schedule to the user's code.
      const bool in_code = from_ == Framework::deepspeed && !loaded.is_given("optimizer.name");
      if (in_code && (key.starts_with("optimizer.") || key.starts_with("lr_scheduler."))) continue;
      taken_.push_back({key, value, {file_, 0, 0, ""}});
    }
  }

  /// A stage whose data cannot be imported gets random tokens, and a note.
  void add_sources(const LoadedConfig& loaded) {
    for (std::size_t i = 0; i < loaded.config.data.size(); ++i) {
      if (!loaded.config.data[i].sources.empty()) continue;
      taken_.push_back({text("data.", i, ".sources.0.path"), {"synthetic"}, {file_, 0, 0, ""}});
      notes_.push_back(text("data stage ", i, " has no token files: \"synthetic\" stands in their place"));
    }
  }

  void note(const Setting& s, const std::string& why, bool harmless = false) {
    (harmless ? harmless_ : notes_)
        .push_back(text(shortened(s.path), str(s.value).empty() ? "" : " = " + brief(s.value),
                        s.place.line > 0 ? text(" (line ", s.place.line, ")") : "", ": ", why));
  }

  Framework from_;
  const std::string& file_;
  const std::string& contents_;
  Settings taken_;
  std::vector<std::string> notes_, harmless_;
  static constexpr const char* kNoDecay = "optimizer.weight_decay_exclude_named_params";
  std::map<std::string, Setting> flavor_, validation_;
  std::optional<Setting> initial_weights_;   // torchtitan's checkpoint.initial_load_path
  std::map<std::string, Value> checkpoint_;  // its other keys in [checkpoint] without a counterpart
  std::map<std::string, int> sources_;       // by data stage: number of sources from a map
  std::set<std::string> open_;               // our keys whose value only the user's code knows
  std::set<std::string> automatic_;          // foreign keys that are "auto"
  std::optional<Value> total_;               // DeepSpeed's total_num_steps, if the run has another number
};

}  // namespace

Framework recognise(const std::string& file, const std::string& contents) {
  const std::string ending = ending_of(file);
  if (ending == ".yaml" || ending == ".yml") return Framework::nanotron;
  if (ending == ".toml") {
    require<ConfigError>(!is_ours(parse_toml(file, contents)), file,
                         " is a config of trireme already: there is nothing to translate\n  fix: use it as it is, for "
                         "instance trireme config check ",
                         file, "; or say whose it is: --from torchtitan");
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

}  // namespace trireme::config
