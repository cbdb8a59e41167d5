#include "trireme/config/foreign/torchtitan_parts.hpp"

#include "trireme/base/error.hpp"
#include "trireme/config/read/convert.hpp"
#include "trireme/config/schema/fields.hpp"
#include "trireme/config/schema/presets.hpp"

namespace trireme::config {

bool TorchtitanParts::take(const Setting& s) {
  if (s.path == "model.name" || s.path == "model.flavor") {
    flavor_[s.path] = s;
  } else if (s.path.starts_with("validation.")) {
    validation_[leaf_of(s.path)] = s;
  } else if (s.path == "checkpoint.initial_load_path") {
    initial_weights_ = s;
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
               "a checkpoint of torchtitan cannot be read here: the run would begin with random weights; convert it to "
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
