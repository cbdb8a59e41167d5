#include "trireme/train/run/changes_since.hpp"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <set>

#include "trireme/base/error.hpp"
#include "trireme/runtime/rank/fingerprint.hpp"

namespace trireme {
namespace {

bool any_prefix(std::string_view key, std::initializer_list<std::string_view> prefixes) {
  return std::ranges::any_of(prefixes, [&](std::string_view prefix) { return key.starts_with(prefix); });
}

/// Keys of a model that do not decide what its parameters are and what it computes.
bool is_model_detail(std::string_view key) {
  return any_prefix(key, {"model.init", "model.dtype", "model.preset", "model.hf", "model.vocab_multiple",
                          "model.embd_pdrop", "model.resid_pdrop", "model.attention_dropout"});
}

/// Keys that have no effect on the numbers, apart from rounding.
bool is_about_running(std::string_view key) {
  return any_prefix(key,
                    {"run.name", "run.dir", "metrics.", "profiler.", "checkpoint.", "comm.", "cuda.", "parallelism.",
                     "activation_checkpoint.", "training.micro_batch_size", "training.grad_accum"});
}

/// The key of accept_changes that a config key belongs to; empty: it may change.
std::string_view kind_of_change(std::string_view key) {
  if (key.starts_with("model.") && !is_model_detail(key)) return "model";
  if (key == "run.seed") return "seed";
  // What was frozen has no states, and what is frozen now has no place for them.
  if (key == "optimizer.name" || key == "optimizer.frozen") return "optimizer";
  return "";
}

/// Data and tokenizer paths may change: what they contain is in the data's identity.
bool is_compared_by_content(std::string_view key) {
  return any_prefix(key, {"data.", "tokenizer."}) && key.ends_with(".path");
}

/// 2 of "stage 2 source 1"; 0 for what is not of a stage.
std::size_t stage_of(std::string_view key) {
  constexpr std::string_view kStage = "stage ";
  std::size_t stage = 0;
  if (key.starts_with(kStage)) std::from_chars(key.data() + kStage.size(), key.data() + key.size(), stage);
  return stage;
}

std::string changed(const std::string& key, const std::string& then, const std::string& now) {
  return text(key, ": ", then.empty() ? "none" : then, " in the checkpoint, ", now.empty() ? "none" : now, " now");
}

std::string value_or_empty(const KeyValues& values, const std::string& key) {
  const auto found = values.find(key);
  return found == values.end() ? "" : found->second;
}

/// Calls f(key, then, now) for each key whose values differ.
template <class F>
void for_each_difference(const KeyValues& then, const KeyValues& now, const F& f) {
  std::set<std::string> keys;
  for (const auto& [key, value] : then) keys.insert(key);
  for (const auto& [key, value] : now) keys.insert(key);
  for (const std::string& key : keys)
    if (const std::string old = value_or_empty(then, key), is = value_or_empty(now, key); old != is) f(key, old, is);
}

/// What a checkpoint has of the config, with the defaults of keys that are newer than it.
KeyValues with_newer_keys(KeyValues then) {
  static const KeyValues defaults = fingerprint_of_config(Config{});
  then.insert(defaults.begin(), defaults.end());
  return then;
}

}  // namespace

Changes changes_since(const checkpoint::Manifest& manifest, const KeyValues& config, const KeyValues& data,
                      const std::vector<std::string>& accepted) {
  Changes out;
  const auto accepts = [&](std::string_view kind) { return std::ranges::find(accepted, kind) != accepted.end(); };
  const auto add = [&](std::string_view kind, std::string change) {
    (accepts(kind) ? out.noted : out.refused).push_back(std::move(change));
    if (!accepts(kind) && std::ranges::find(out.refused_kinds, kind) == out.refused_kinds.end())
      out.refused_kinds.emplace_back(kind);
  };
  for_each_difference(with_newer_keys(manifest.config), with_newer_keys(config),
                      [&](const std::string& key, const auto& then, const auto& now) {
                        const std::string_view kind = kind_of_change(key);
                        if (!kind.empty()) {
                          add(kind, changed(key, then, now));
                          out.new_optimizer |= kind == "optimizer";
                        } else if (!is_about_running(key) && !is_compared_by_content(key)) {
                          out.noted.push_back(changed(key, then, now));
                        }
                      });
  // A stage that had not begun may be another one.
  const auto begun = [&](const KeyValues& all) {
    KeyValues some;
    for (const auto& [key, value] : all) {
      if (stage_of(key) <= manifest.training.samples_consumed.size()) some.emplace(key, value);
    }
    return some;
  };
  for_each_difference(begun(manifest.training.data), begun(data),
                      [&](const std::string& key, const auto& then, const auto& now) {
                        const bool of_tokenizer = key == "tokenizer";
                        add(of_tokenizer ? "tokenizer" : "data", changed(key, then, now));
                        out.new_data |= !of_tokenizer;
                      });
  return out;
}

void require_nothing_refused(const std::filesystem::path& path, const Changes& changes) {
  if (changes.refused.empty()) return;
  std::string listed, kinds;
  for (const std::string& change : changes.refused) listed += "\n  " + change;
  for (const std::string& kind : changes.refused_kinds) kinds += (kinds.empty() ? "" : ",") + kind;
  const bool may_accept = std::ranges::find(changes.refused_kinds, "model") == changes.refused_kinds.end();
  throw CheckpointError(text(path.string(), ": the config no longer matches this checkpoint", listed,
                             "\n  fix: change it back; or --checkpoint.resume never, for a new run",
                             may_accept ? "; or accept it: --checkpoint.accept_changes " + kinds : ""));
}

void require_steps_left(const std::filesystem::path& path, std::int64_t done, std::int64_t steps) {
  require<ConfigError>(
      done < steps, path.string(), " is after step ", done, ", training.steps = ", steps,
      ": nothing is left to do\n  fix: more training.steps, or --checkpoint.resume never for a new run");
}

std::vector<std::string> changes_of_complete_run(const KeyValues& then, const KeyValues& now) {
  // The schedule of learning rates and the stages of the data follow from the steps.
  const bool same_steps = value_or_empty(then, "training.steps") == value_or_empty(now, "training.steps");
  std::vector<std::string> changes;
  for_each_difference(
      with_newer_keys(then), with_newer_keys(now), [&](const std::string& key, const auto& old, const auto& is) {
        if (key == "training.global_batch_size") return;  // it may follow from the number of ranks
        const bool counts =
            same_steps ? !is_about_running(key) && !is_compared_by_content(key) : !kind_of_change(key).empty();
        if (counts) changes.push_back(changed(key, old, is));
      });
  return changes;
}

bool is_same_run(const KeyValues& then, const KeyValues& now) {
  bool same = true;
  for_each_difference(with_newer_keys(then), with_newer_keys(now),
                      [&](const std::string& key, const auto&, const auto&) { same &= is_about_running(key); });
  return same;
}

}  // namespace trireme
