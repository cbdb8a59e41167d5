#include "trireme/config/rules/validate.hpp"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iterator>

#include "trireme/base/name_pattern.hpp"
#include "trireme/config/rules/rules.hpp"
#include "trireme/config/schema/family.hpp"
#include "trireme/config/schema/fields.hpp"
#include "trireme/config/schema/lr_factor.hpp"
#include "trireme/describe/parameters.hpp"
#include "trireme/describe/pipeline.hpp"
#include "trireme/schedule/replay.hpp"

namespace trireme::config {
namespace {

constexpr std::int64_t kMaxReplayedSteps = 100'000;
constexpr std::int64_t kMaxNamedLayers = 10'000;

void check_optimizer(Rules& rules) {
  const Config& c = rules.config;
  std::vector<double> betas = c.optimizer.betas;
  if (betas.size() != 2 || std::ranges::any_of(betas, [](double b) { return b >= 1; }))
    rules.violation("optimizer.betas", text("optimizer.betas = ", toml_text(&betas)),
                    "two numbers, each at least 0 and below 1");
  if (c.optimizer.name == "sgd" && c.optimizer.nesterov && c.optimizer.momentum == 0)
    rules.violation("optimizer.nesterov", "optimizer.nesterov = true with optimizer.momentum = 0",
                    "Nesterov's step looks ahead along the momentum", "set a momentum, for instance 0.9");
}

/// The names that some model could have: a pattern for biases is no mistake if this model has none.
std::vector<std::string> names_of_all_families() {
  std::vector<std::string> names;
  for (const FamilyInfo& family : families()) {
    ModelConfig model;
    model.model_type = family.name;
    model.num_hidden_layers = 1;
    model.attention_bias = model.qk_norm = true;
    if (family.hf.experts != HfExperts::none) model.num_local_experts = 1;
    std::ranges::move(parameter_names(model), std::back_inserter(names));
  }
  return names;
}

/// Keys that name parameters: patterns that are none, and those that match no parameter.
class NamedParameters {
 public:
  explicit NamedParameters(Rules& rules) : rules_(rules) {
    const ModelConfig& m = rules.config.model;
    const FamilyInfo* family = find_family(m.model_type);
    is_known_ = family != nullptr && !family->is_registered() && m.num_hidden_layers > 0 &&
                m.num_hidden_layers <= kMaxNamedLayers;
    if (is_known_) names_ = parameter_names(m);
  }

  void check(const std::string& key, const std::string& given, const std::function<NamePattern()>& pattern_of) {
    try {
      const NamePattern pattern = pattern_of();
      const auto matches = [&](const std::string& name) { return pattern.matches(name); };
      if (!is_known_ || std::ranges::any_of(names_, matches) || std::ranges::any_of(names_of_all_families(), matches))
        return;
      std::string near;
      for (const std::string& name : nearest_names(given, names_)) near += (near.empty() ? "" : ", ") + name;
      rules_.warn(key, ": \"", shortened(given), "\" matches no parameter; the nearest are ", near);
    } catch (const ConfigError& e) {
      rules_.violation(key, text(key, ": ", shortened(e.what(), 200)), "",
                       "a part of a name, a glob such as *.bias, or re:REGEX");
    }
  }

  /// Whether these patterns match all parameters of the model.
  bool are_all(const std::vector<std::string>& patterns) const {
    const std::vector<NamePattern> any = name_patterns(patterns);
    return is_known_ && !patterns.empty() &&
           std::ranges::all_of(names_, [&](const std::string& name) { return matches_any(any, name); });
  }

 private:
  Rules& rules_;
  bool is_known_ = false;
  std::vector<std::string> names_;
};

void check_parameter_names(Rules& rules) {
  const OptimizerConfig& o = rules.config.optimizer;
  const std::size_t violations = rules.loaded.violations.size();
  NamedParameters named(rules);
  for (const std::string& word : o.no_decay) named.check("optimizer.no_decay", word, [&] { return NamePattern(word); });
  for (const std::string& word : o.frozen) named.check("optimizer.frozen", word, [&] { return NamePattern(word); });
  for (const std::string& word : o.lr_factors)
    named.check("optimizer.lr_factors", word, [&] { return NamePattern(parse_lr_factor(word).pattern); });
  if (rules.loaded.violations.size() == violations && named.are_all(o.frozen))
    rules.violation("optimizer.frozen", "optimizer.frozen matches all parameters", "a run trains something",
                    "leave out what is to be trained; trireme evaluate needs no training");
}

/// Warm-up and decay of the learning rate. Expects derived values.
void check_lr_schedule(Rules& rules) {
  const Config& c = rules.config;
  const LrSchedulerConfig& s = c.lr_scheduler;
  const auto steps = static_cast<double>(c.training.steps);
  for (const auto& [key, rate] : {std::pair{"min_lr", s.min_lr}, std::pair{"start_lr", s.start_lr}})
    if (rate > c.optimizer.lr)
      rules.violation_of({text("lr_scheduler.", key), "optimizer.lr"},
                         text(key, " = ", rate, " is above optimizer.lr = ", c.optimizer.lr),
                         "optimizer.lr is the highest rate: the warm-up ends there and the decay begins there");
  if (s.warmup_steps > steps)
    rules.warn("warmup_steps = ", s.warmup_steps, " is more than steps = ", c.training.steps,
               ": the learning rate never reaches its peak");
  if (s.decay == "constant" || s.decay == "inverse-sqrt") return;
  if (s.decay_end_step < s.decay_start_step && s.warmup_steps <= steps)
    rules.violation("lr_scheduler.decay_end_step",
                    text("lr_scheduler: the decay ends after step ", s.decay_end_step, ", and begins after step ",
                         s.decay_start_step),
                    "", "decay_start_step at most decay_end_step");
  else if (!rules.is_derived("lr_scheduler.decay_steps") && !rules.is_derived("lr_scheduler.decay_start_step") &&
           !rules.is_derived("lr_scheduler.decay_end_step") && s.decay_start_step + s.decay_steps != s.decay_end_step)
    rules.violation("lr_scheduler.decay_steps",
                    text("lr_scheduler: decay_start_step ", s.decay_start_step, " + decay_steps ", s.decay_steps,
                         " is not decay_end_step ", s.decay_end_step),
                    "two of them determine the third", "leave one of them out");
  else if (s.warmup_steps <= steps && s.decay_end_step > steps + static_cast<double>(s.start_delay))
    rules.warn("the learning rate decays until step ", s.decay_end_step, ", after the last step ", c.training.steps,
               ": the decay does not reach its end");
  if (s.min_lr == 0 && s.decay_end_step < steps && s.warmup_steps < s.decay_end_step)
    rules.warn("the learning rate is 0 from step ", Steps(std::ceil(s.decay_end_step) + 1), " on, of ",
               c.training.steps, " (decay_end_step = ", s.decay_end_step, ", min_lr = 0): those steps train nothing");
}

/// What only built-in families have.
void check_registered_family(Rules& rules) {
  const Config& c = rules.config;
  const FamilyInfo* family = find_family(c.model.model_type);
  if (family == nullptr || !family->is_registered()) return;
  const std::string whose = text(" with the family ", family->name),
                    why = "this program has registered it: other formats have no names for its parameters";
  if (c.model.init.starts_with("hf:"))
    rules.violation_of({"model.init", "model.model_type"},
                       text("model.init = \"", shortened(c.model.init), "\"", whose), why,
                       "\"random\"; a run resumes from its own checkpoints");
  if (c.checkpoint.format == "nanotron")
    rules.violation_of({"checkpoint.format", "model.model_type"}, text("checkpoint.format = \"nanotron\"", whose), why,
                       "\"trireme\"");
  if (c.checkpoint.export_hf)  // derived: off
    rules.violation_of({"checkpoint.export_hf", "model.model_type"}, text("checkpoint.export_hf = true", whose), why,
                       "leave it out");
  rules.warn("the family ", family->name, " is registered by this program: activations are predicted as those of ",
             family->like, ", and no weights are written for transformers or nanotron");
}

void check_checkpoint_format(Rules& rules) {
  if (rules.config.checkpoint.format != "nanotron" || rules.config.model.num_local_experts == 0) return;
  rules.violation_of(
      {"checkpoint.format", "model.num_local_experts"},
      text("checkpoint.format = \"nanotron\" with num_local_experts = ", rules.config.model.num_local_experts),
      "nanotron's folder has no names for experts", "\"trireme\"");
}

/// As a part of the run's folder: traces must not be written elsewhere.
void check_profiler(Rules& rules) {
  if (!rules.config.profiler.operations)
    for (const char* key : {"profiler.wait", "profiler.warmup", "profiler.active", "profiler.with_stack"})
      if (rules.loaded.is_given(key)) rules.warn(key, " has no effect without profiler.operations = true");
  for (const std::int64_t step : rules.config.profiler.steps)
    if (step > rules.config.training.steps)
      rules.warn("profiler.steps has step ", step, ", after the last step ", rules.config.training.steps,
                 ": it lists step numbers, so nothing is traced there");
  const std::string& dir = rules.config.profiler.dir;
  const std::filesystem::path path = std::filesystem::path(dir).lexically_normal();
  if (path.is_absolute() || path == "." || *path.begin() == "..")
    rules.violation("profiler.dir", text("profiler.dir = \"", shortened(dir), "\" is not inside the run's folder"),
                    "a relative path without ..", "a name such as \"trace\"; run.dir says where runs are");
}

void check_data(Rules& rules) {
  const Config& c = rules.config;
  for (std::size_t i = 0; i < c.data.size(); ++i) {
    const std::string stage = text("data.", i);
    const std::int64_t start = c.data[i].start_step;
    if (i == 0 && start != 1)
      rules.violation(stage + ".start_step", text("the first data stage starts at step ", start),
                      "steps are counted from 1", "set start_step = 1");
    if (i > 0 && start <= c.data[i - 1].start_step)
      rules.violation(
          stage + ".start_step",
          text("data stage ", i, " starts at step ", start, ", stage ", i - 1, " at step ", c.data[i - 1].start_step),
          "stages follow one another", "raise start_step");
    if (start > c.training.steps)
      rules.warn("data stage ", i, " starts at step ", start, ", after the last step ", c.training.steps);
    if (c.data[i].sources.empty())
      rules.violation_at(rules.place_of_table(stage), text("data stage ", i, " has no sources"), "",
                         "sources = [ { path = \"...\" } ], or path = \"synthetic\"");
    for (std::size_t j = 0; j < c.data[i].sources.size(); ++j)
      if (c.data[i].sources[j].path.empty())
        rules.violation_at(rules.place_of_table(text(stage, ".sources.", j)),
                           text("source ", j, " of data stage ", i, " has no path"), "",
                           "path = \"...\", or path = \"synthetic\"");
  }
}

void check_validation(Rules& rules) {
  const ValidationConfig& v = rules.config.validation;
  if (v.fraction >= 1)
    rules.violation("validation.fraction", text("validation.fraction = ", v.fraction),
                    "at least 0 and below 1: something must be left to train on");
  if (v.fraction > 0 && !v.sources.empty())
    rules.violation("validation.fraction", text("validation.fraction = ", v.fraction, " with validation.sources"),
                    "held-out tokens, or files of their own", "leave one of the two out");
  if (v.interval > 0 && v.fraction == 0 && v.sources.empty())
    rules.violation("validation.interval",
                    text("validation.interval = ", v.interval, ", but there is nothing to validate on"), "",
                    "set validation.fraction, for instance 0.01, or validation.sources");
}

/// Warnings: noteworthy, but no violation.
void note(Rules& rules) {
  const ParallelismConfig& p = rules.config.parallelism;
  if (p.dp > 512) rules.warn("dp = ", p.dp, " is more than 512: latency grows with the length of the ring");
  if (rules.started.ranks_of_a_host > 0 && p.tp > rules.started.ranks_of_a_host)
    rules.warn("tp = ", p.tp, " is wider than one host (", rules.started.ranks_of_a_host,
               " ranks): its all-reduces cross slower links between hosts");
  const bool scaled = rules.loaded.is_given("loss_scale.initial") ||
                      rules.loaded.is_given("loss_scale.growth_interval") ||
                      rules.loaded.is_given("loss_scale.hysteresis");
  if (scaled && rules.config.model.dtype != "float16" && rules.config.precision.param != "float16")
    rules.warn("[loss_scale] is for float16; this run does not use it");

  const std::int64_t microbatches = rules.config.training.grad_accum;
  if (rules.any() || p.pp == 1 || microbatches >= p.pp) return;
  std::string bubble = "large";
  if (p.pp * microbatches * p.virtual_stages <= kMaxReplayedSteps) {
    const schedule::Replay r = schedule::replay(pipeline_schedule(p, microbatches));
    char percent[32];
    std::snprintf(percent, sizeof percent, "%.0f%% of the time", 100 * r.bubble_share());
    bubble = percent;
  }
  rules.warn(microbatches, microbatches == 1 ? " microbatch for " : " microbatches for ", p.pp,
             " stages: the bubble of ", p.pp_schedule_file.empty() ? p.pp_schedule : p.pp_schedule_file, " is ", bubble,
             " (raise grad_accum)");
}

}  // namespace

Place Rules::place_of_table(const std::string& table) const {
  std::vector<std::string> keys;
  for (const auto& [key, origin] : loaded.origins)
    if (key.starts_with(table + ".") && origin.kind == Origin::Kind::file) keys.push_back(key);
  return keys.empty() ? Place{loaded.file, 0, 0, ""} : first_given(loaded, keys);
}

namespace {

const std::string* set_by_flag(const LoadedConfig& loaded, const std::vector<std::string>& keys) {
  const auto flagged = std::ranges::find_if(keys, [&](const std::string& key) {
    const auto origin = loaded.origins.find(key);
    return origin != loaded.origins.end() && origin->second.kind == Origin::Kind::flag;
  });
  return flagged == keys.end() ? nullptr : &*flagged;
}

}  // namespace

Place changed_place(const LoadedConfig& loaded, const std::vector<std::string>& keys) {
  const std::string* flagged = set_by_flag(loaded, keys);
  return loaded.place_of(flagged != nullptr ? *flagged : keys.front());
}

Place first_given(const LoadedConfig& loaded, const std::vector<std::string>& keys) {
  if (const std::string* flagged = set_by_flag(loaded, keys)) return loaded.place_of(*flagged);
  Place best = loaded.place_of(keys.front());
  for (const std::string& key : keys) {
    const Place place = loaded.place_of(key);
    if (!place.file.empty() && (best.file.empty() || place.line < best.line)) best = place;
  }
  return best;
}

std::string divisors(std::int64_t n, bool (*allowed)(std::int64_t, std::int64_t), std::int64_t other) {
  std::string out;
  int count = 0;
  for (std::int64_t d = 1; d <= n && count < 12; ++d)
    if (n % d == 0 && allowed(d, other)) out += text(count++ == 0 ? "" : ", ", d);
  return "{" + out + "}";
}

std::vector<Violation> validate(const LoadedConfig& loaded, const Started& started,
                                std::vector<std::string>& warnings) {
  Rules rules(loaded, started, warnings);
  if (check_model(rules)) check_model_over_ranks(rules);
  check_ranks(rules);
  check_batch(rules);
  check_sequence(rules);
  check_layout(rules);
  check_precision(rules);
  check_optimizer(rules);
  check_lr_schedule(rules);
  check_parameter_names(rules);
  check_profiler(rules);
  check_checkpoint_format(rules);
  check_registered_family(rules);
  check_data(rules);
  check_validation(rules);
  note(rules);
  return std::move(rules).take();
}

std::vector<Violation> validate_layout(const LoadedConfig& loaded) {
  std::vector<std::string> warnings;
  const Started unknown;
  Rules rules(loaded, unknown, warnings);
  check_model_over_ranks(rules);
  check_layout(rules);
  return std::move(rules).take();
}

std::vector<std::string> check_config(LoadedConfig& loaded, const Started& started) {
  derive(loaded, started);
  std::vector<std::string> warnings;
  throw_if_any(validate(loaded, started, warnings));
  return warnings;
}

}  // namespace trireme::config
