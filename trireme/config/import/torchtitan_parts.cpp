#include "trireme/config/import/torchtitan_parts.hpp"

#include "trireme/base/error.hpp"
#include "trireme/config/schema/fields.hpp"
#include "trireme/config/schema/presets.hpp"
#include "trireme/config/settings/convert.hpp"

namespace trireme::config {

bool TorchtitanParts::take(const Setting& s) {
  if (s.path == "model.name" || s.path == "model.flavor") {
    flavor_[s.path] = s;
  } else if (s.path.starts_with("validation.")) {
    validation_[leaf_of(s.path)] = s;
  } else if (s.path == "checkpoint.initial_load_path") {
    initial_weights_ = s;
  } else if (s.path == "model.converters") {
    converters_ = s;
  } else if (s.path.starts_with("quantize.linear.float8.") || s.path.starts_with("float8.")) {
    float8_[leaf_of(s.path)] = s;
  } else if (s.path == "parallelism.pipeline_parallel_layers_per_stage") {
    layers_per_stage_ = s;
  } else if (s.path == "training.global_batch_size" && s.value == Value{std::int64_t{-1}}) {
    return true;  // its value for "derive it"
  } else {
    if (s.path.starts_with("checkpoint.")) checkpoint_[leaf_of(s.path)] = s.value;
    return false;
  }
  return true;
}

void TorchtitanParts::add_model(ImportDraft& draft) {
  const Setting* dataset = draft.find("training.dataset");
  if (dataset != nullptr && draft.find("training.dataset_path") == nullptr)
    draft.note(*dataset, "a dataset by name: prepare its token files, and set data.sources");
  if (flavor_.empty()) return;
  const Setting& s = flavor_.begin()->second;
  const std::string name = plain_text(flavor_["model.name"].value), flavor = plain_text(flavor_["model.flavor"].value);
  const std::string preset = torchtitan_preset(name, flavor);
  if (preset.empty())
    draft.notes.push_back(text("model ", name, "/", flavor, ": no preset of that name; set the sizes under [model]"));
  else
    draft.taken.push_back({"model.preset", {preset}, s.place});
}

void TorchtitanParts::add_float8(ImportDraft& draft) const {
  bool on = false;
  Values words;
  if (converters_) {
    const auto* list = std::get_if<Values>(&converters_->value.data);
    words = list != nullptr ? *list : Values{converters_->value};
  }
  for (const Value& word : words) {
    const std::string name = plain_text(word);
    if (name == "float8" || name == "quantize.linear.float8")
      on = true;
    else if (!name.empty())
      draft.notes.push_back(text("model.converters: ", brief(word), " has no counterpart here"));
  }
  for (const auto& [key, s] : float8_)
    if (!on) draft.harmless.push_back(text(s.path, " = ", brief(s.value), ": model.converters has no float8"));
  if (!on) return;
  draft.taken.push_back({"precision.matmul", {"fp8"}, converters_->place});
  bool head_is_left_out = false;
  for (const auto& [key, s] : float8_) {
    const std::string word = plain_text(s.value);
    if (key == "recipe_name" && (word == "rowwise" || word == "tensorwise")) {
      draft.taken.push_back({"precision.fp8_scaling", {word == "rowwise" ? "row" : "tensor"}, s.place});
    } else if (key == "filter_fqns") {
      const auto* names = std::get_if<Values>(&s.value.data);
      head_is_left_out = names != nullptr && *names == Values{{"output"}};
      if (!head_is_left_out) draft.note(s, "here every linear layer but the head is in float8");
    } else if (key == "enable_fsdp_float8_all_gather" || key == "precompute_float8_dynamic_scale_for_fsdp") {
      draft.note(s, "how weights are sent", /*harmless_note=*/true);
    } else {
      draft.note(s, "no counterpart", s.value == Value{false});
    }
  }
  if (!head_is_left_out && !float8_.contains("filter_fqns"))
    draft.note(*converters_,
               "the head's product, which torchtitan has in float8 unless filter_fqns names it, is not here",
               /*harmless_note=*/false);
}

void TorchtitanParts::add_chunks(ImportDraft& draft, const Config& so_far) const {
  if (so_far.parallelism.pp_schedule != "interleaved-1f1b") {
    if (layers_per_stage_) draft.note(*layers_per_stage_, "where layers are cut changes no result", true);
    return;
  }
  std::int64_t chunks = 2;
  if (layers_per_stage_) {
    const auto each = static_cast<std::int64_t>(plain_number(layers_per_stage_->value).value_or(0));
    const std::int64_t layers = so_far.model.num_hidden_layers, pp = so_far.parallelism.pp;
    if (each < 1 || layers < 1)
      return draft.note(*layers_per_stage_, "set parallelism.virtual_stages: chunks per rank");
    constexpr std::int64_t kEnds = 2;  // embedding and head count as a layer each
    const std::int64_t all = (layers + kEnds + each - 1) / each;
    if (all % pp != 0 || all / pp < 2)
      return draft.note(*layers_per_stage_, text("gives ", all, " chunks for ", pp, " pipeline ranks"));
    chunks = all / pp;
  }
  draft.add("parallelism.virtual_stages", {chunks});
}

void TorchtitanParts::add_initial_weights(ImportDraft& draft) const {
  if (!initial_weights_ || plain_text(initial_weights_->value).empty()) return;
  const Setting& s = *initial_weights_;
  const auto is = [&](const char* key, bool on) {
    const auto it = checkpoint_.find(key);
    return it != checkpoint_.end() && it->second == Value{on};
  };
  const bool off = is("enable", false) || is("enable_checkpoint", false);
  if (off) {
    draft.note(s, "checkpoint.enable is false, so torchtitan loads no weights; to load them, set model.init");
  } else if (!is("initial_load_in_hf", true)) {
    draft.note(s,
               "a checkpoint of torchtitan cannot be read here: the run would start with random weights; convert it to "
               "Hugging Face's format, and set model.init = \"hf:FOLDER\"");
  } else {
    draft.taken.push_back({"model.init", {"hf:" + plain_text(s.value)}, s.place});
    if (!is("enable", true) && !is("enable_checkpoint", true))
      draft.note(s,
                 "torchtitan loads it only with checkpoint.enable = true, which is not in this file; here model.init "
                 "loads it");
  }
}

void TorchtitanParts::add_validation(ImportDraft& draft, const Config& so_far) const {
  const auto value = [&](const char* key) {
    const auto it = validation_.find(key);
    return it == validation_.end() ? nullptr : &it->second;
  };
  const Setting* on = value("enable") != nullptr ? value("enable") : value("enabled");
  const bool enabled = on != nullptr && on->value == Value{true};
  for (const auto& [key, s] : validation_)
    if (!enabled) draft.harmless.push_back(text(s.path, " = ", brief(s.value), ": validation is off"));
  if (!enabled) return;
  const auto number = [&](const char* key, double standard) {
    return value(key) != nullptr ? plain_number(value(key)->value).value_or(standard) : standard;
  };
  draft.taken.push_back({"validation.interval", {number("freq", 10)}, on->place});
  const Setting* source = value("dataset_path") != nullptr ? value("dataset_path") : value("dataset");
  const Value path = source != nullptr ? source->value : Value{"c4_validation"};
  draft.taken.push_back({"validation.sources", {Values{path}}, on->place});
  if (value("dataset_path") == nullptr)
    draft.notes.push_back(text("validation.dataset = ", brief(path),
                               ": a dataset by name; prepare its token files, and set "
                               "validation.sources"));
  if (const double steps = number("steps", -1); steps > 0) {
    const auto dp = static_cast<double>(so_far.parallelism.dp);
    if (dp > 0)
      draft.taken.push_back({"validation.samples", {steps * number("local_batch_size", 8) * dp}, on->place});
    else
      draft.notes.push_back(text("validation.steps = ", steps,
                                 ": samples of each source depend on the number of ranks; set "
                                 "validation.samples"));
  }
  if (const Setting* length = value("seq_len");
      length != nullptr && plain_number(length->value) != static_cast<double>(so_far.training.seq_len))
    draft.note(*length, "validation has the length of training");
}

}  // namespace trireme::config
