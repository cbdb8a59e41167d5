#include "trireme/config/translate/translations.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "trireme/base/error.hpp"
#include "trireme/config/settings/convert.hpp"
#include "trireme/config/translate/nanotron_names.hpp"
#include "trireme/config/translate/translating.hpp"
#include "trireme/describe/counts.hpp"

namespace trireme::config {
namespace {

using namespace translating;

Settings if_true(const Setting& s, const std::string& key, Value value) {
  return truth_of(s) ? one(s, key, std::move(value)) : Settings{};
}

Settings beta(const Setting& s, const std::string& key, const Config& so_far, std::size_t index) {
  std::vector<double> betas = so_far.optimizer.betas;
  betas.resize(2, 0);
  betas[index] = number_or_throw(s);
  return one(s, key, {Values{{betas[0]}, {betas[1]}}});
}

constexpr std::int64_t kMaxProfiledSteps = 1000;

/// The steps in [first, end).
Settings profiled(const Setting& s, const std::string& key, std::int64_t first, std::int64_t end) {
  require<ConfigError>(end - first <= kMaxProfiledSteps, s.path, " = ", brief(s.value), ": steps ", first, " to ", end,
                       " are more than ", kMaxProfiledSteps, " to profile");
  Values steps(static_cast<std::size_t>(std::max<std::int64_t>(0, end - first)));
  for (Value& step : steps) step.data = first++;
  return one(s, key, {std::move(steps)});
}

}  // namespace

namespace translations {

// --- unchanged values

Settings same(const Setting& s, const std::string& key, const Config&) {
  return std::holds_alternative<Nothing>(s.value.data) ? Settings{} : one(s, key, s.value);
}
Settings as_lower(const Setting& s, const std::string& key, const Config&) {
  return one(s, key, {lower(word_of(s.value))});
}
Settings as_truth(const Setting& s, const std::string& key, const Config&) { return one(s, key, {truth_of(s)}); }
Settings not_of(const Setting& s, const std::string& key, const Config&) { return one(s, key, {!truth_of(s)}); }
Settings minutes(const Setting& s, const std::string& key, const Config&) {
  return one(s, key, {60 * number_or_throw(s)});
}
Settings power_of_two(const Setting& s, const std::string& key, const Config&) {
  return one(s, key, {std::exp2(number_or_throw(s))});
}

// --- switches

Settings bfloat16_if_true(const Setting& s, const std::string& key, const Config&) {
  return if_true(s, key, {"bfloat16"});
}
Settings float16_if_true(const Setting& s, const std::string& key, const Config&) {
  return if_true(s, key, {"float16"});
}
Settings float32_if_true(const Setting& s, const std::string& key, const Config&) {
  return if_true(s, key, {"float32"});
}
Settings selective_if_true(const Setting& s, const std::string& key, const Config&) {
  return if_true(s, key, {"selective"});
}
Settings full_if_true(const Setting& s, const std::string& key, const Config&) { return if_true(s, key, {"full"}); }
Settings one_if_true(const Setting& s, const std::string& key, const Config&) {
  return if_true(s, key, {std::int64_t{1}});
}
Settings three_if_true(const Setting& s, const std::string& key, const Config&) {
  return if_true(s, key, {std::int64_t{3}});
}
Settings document_if_true(const Setting& s, const std::string& key, const Config&) {
  return if_true(s, key, {"document"});
}
Settings first_step_if_true(const Setting& s, const std::string& key, const Config&) {
  return truth_of(s) ? profiled(s, key, 1, 2) : Settings{};
}
/// Steps 10 and 11, unless others are given.
Settings profile(const Setting& s, const std::string& key, const Config&) {
  return truth_of(s) ? profiled(s, key, 10, 12) : Settings{};
}

// --- words by table

Settings dtype(const Setting& s, const std::string& key, const Config&) {
  static const Words words = {
      {"bf16", {"bfloat16"}},   {"bfloat16", {"bfloat16"}}, {"torch.bfloat16", {"bfloat16"}}, {"fp16", {"float16"}},
      {"half", {"float16"}},    {"float16", {"float16"}},   {"torch.float16", {"float16"}},   {"fp32", {"float32"}},
      {"float", {"float32"}},   {"float32", {"float32"}},   {"torch.float32", {"float32"}},   {"fp64", {"float64"}},
      {"float64", {"float64"}}, {"double", {"float64"}}};
  return by_table(s, key, words);
}

Settings tp_mode(const Setting& s, const std::string& key, const Config&) {
  return by_table(s, key, {{"reduce_scatter", {true}}, {"all_reduce", {false}}});
}

Settings nanotron_z_loss(const Setting& s, const std::string& key, const Config&) {
  constexpr double kDefault = 1e-4;
  return one(s, key, {truth_of(s) ? kDefault : 0.0});
}

Settings if_positive(const Setting& s, const std::string& key, const Config& so_far) {
  return so_far.training.z_loss_coef > 0 ? one(s, key, s.value) : Settings{};
}

Settings nanotron_engine(const Setting& s, const std::string& key, const Config&) {
  return by_table(s, key, {{"afab", {"afab"}}, {"1f1b", {"1f1b"}}});
}

Settings schedule(const Setting& s, const std::string& key, const Config&) {
  static const Words words = {{"gpipe", {"afab"}},
                              {"1f1b", {"1f1b"}},
                              {"interleaved1f1b", {"interleaved-1f1b"}},
                              {"zbvzerobubble", {"zbv"}},
                              {"dualpipev", {"dualpipe-v"}}};
  return by_table(s, key, words);
}

/// Adam in Megatron and DeepSpeed uses decoupled weight decay, which is AdamW.
Settings adam_is_adamw(const Setting& s, const std::string& key, const Config&) {
  return by_table(s, key, {{"adam", {"adamw"}}, {"adamw", {"adamw"}}, {"sgd", {"sgd"}}});
}

Settings nanotron_scaling(const Setting& s, const std::string& key, const Config&) {
  return by_table(s, key, {{"none", {"normal"}}, {"num_layers", {"scaled"}}, {"layer_index", {"depth-scaled"}}});
}

/// The implementations of AdamW compute the same. torch's SGD has no momentum unless optim_args has one.
Settings hf_optim(const Setting& s, const std::string& key, const Config&) {
  static const Words words = {{"adamw_torch", {"adamw"}},
                              {"adamw_torch_fused", {"adamw"}},
                              {"adamw_torch_xla", {"adamw"}},
                              {"adamw_torch_npu_fused", {"adamw"}},
                              {"adamw_apex_fused", {"adamw"}},
                              {"adamw_hf", {"adamw"}},
                              {"sgd", {"sgd"}}};
  Settings out = by_table(s, key, words);
  if (!out.empty() && out.front().value == Value{"sgd"}) out.push_back({"optimizer.momentum", {0.0}, s.place});
  return out;
}

/// "full_shard auto_wrap": the first word is the strategy. An empty string or false means none.
Settings hf_fsdp(const Setting& s, const std::string& key, const Config&) {
  if (const auto* on = std::get_if<bool>(&s.value.data)) return one(s, key, {std::int64_t{*on ? 3 : 0}});
  Setting first = s;
  if (const auto* list = std::get_if<Values>(&s.value.data))
    first.value = list->empty() ? Value{""} : list->front();
  else
    first.value = {word_of(s.value).substr(0, word_of(s.value).find(' '))};
  static const Words words = {{"", {std::int64_t{0}}},
                              {"no_shard", {std::int64_t{0}}},
                              {"shard_grad_op", {std::int64_t{2}}},
                              {"full_shard", {std::int64_t{3}}}};
  return by_table(first, key, words);
}

/// A path as it is; true means the latest, and so does torchtitan's -1. Its other step numbers have no known path.
Settings resume(const Setting& s, const std::string& key, const Config&) {
  if (const auto* on = std::get_if<bool>(&s.value.data)) return one(s, key, {*on ? "auto" : "never"});
  const auto step = number_of(s.value);
  if (!step) return same(s, key, {});
  require<NoCounterpart>(*step == -1, s.path, " = ", brief(s.value),
                         " has no counterpart here: only -1 and a checkpoint's folder have");
  return one(s, key, {"auto"});
}

Settings memory_snapshot(const Setting& s, const std::string& key, const Config&) {
  return one(s, key, {truth_of(s) ? "steps" : "never"});
}

// --- one setting that sets several keys

/// Megatron also uses this probability for the dropout after the embedding.
Settings hidden_dropout(const Setting& s, const std::string& key, const Config&) {
  return {{key, s.value, s.place}, {"model.embd_pdrop", s.value, s.place}};
}

/// More than one chunk per rank selects Megatron's interleaved schedule.
Settings virtual_stages(const Setting& s, const std::string& key, const Config&) {
  Settings out = one(s, key, {whole_or_throw(s)});
  if (whole_or_throw(s) > 1) out.push_back({"parallelism.pp_schedule", {"interleaved-1f1b"}, s.place});
  return out;
}

/// A flag's value is one string of words separated by spaces.
Settings weights_and_paths(const Setting& s, const std::string& key, const Config&) {
  std::vector<std::string> words;
  if (const auto* list = std::get_if<Values>(&s.value.data)) {
    for (const Value& v : *list) words.push_back(word_of(v));
  } else {
    std::istringstream in(word_of(s.value));
    for (std::string word; in >> word;) words.push_back(word);
  }
  const bool weighted = words.size() > 1 && number_of({words[0]}).has_value();
  require<ConfigError>(!weighted || words.size() % 2 == 0, s.path, " = ", brief(s.value), ": a weight for each path");
  Settings out;
  for (std::size_t i = 0, j = 0; i < words.size(); ++i, ++j) {
    if (weighted) {
      const auto weight = number_of({words[i]});
      require<ConfigError>(weight.has_value(), s.path, ": ", words[i], " is not a weight");
      out.push_back({text(key, ".", j, ".weight"), {*weight}, s.place});
      ++i;
    }
    out.push_back({text(key, ".", j, ".path"), {words[i]}, s.place});
  }
  return out;
}

Settings folders(const Setting& s, const std::string& key, const Config&) {
  if (!std::holds_alternative<Values>(s.value.data)) return one(s, key + ".0.path", s.value);
  Settings out;
  for (const Value& folder : std::get<Values>(s.value.data))
    out.push_back({text(key, ".", out.size(), ".path"), folder, s.place});
  return out;
}

Settings weights(const Setting& s, const std::string& key, const Config&) {
  if (std::holds_alternative<Nothing>(s.value.data)) return {};
  require<ConfigError>(std::holds_alternative<Values>(s.value.data), s.path, " = ", brief(s.value),
                       " is not a list of weights");
  Settings out;
  for (const Value& weight : std::get<Values>(s.value.data))
    out.push_back({text(key, ".", out.size(), ".weight"), weight, s.place});
  return out;
}

// --- translations that read other settings

Settings beta1(const Setting& s, const std::string& key, const Config& so_far) { return beta(s, key, so_far, 0); }
Settings beta2(const Setting& s, const std::string& key, const Config& so_far) { return beta(s, key, so_far, 1); }

Settings tokens_as_sequences(const Setting& s, const std::string& key, const Config& so_far) {
  const std::int64_t tokens = whole_or_throw(s), seq_len = so_far.training.seq_len;
  require<ConfigError>(tokens % seq_len == 0, s.path, " = ", tokens,
                       " is not a whole number of sequences of training.seq_len = ", seq_len);
  return one(s, key, {tokens / seq_len});
}

/// DeepSpeed gives a bucket size in elements, we in bytes of the accumulation dtype.
Settings elements_as_mb(const Setting& s, const std::string& key, const Config& so_far) {
  return one(s, key, {number_or_throw(s) * dtype_bytes(so_far.precision.accumulate) / 1e6});
}

/// A switch of nanotron's model is a key of each data stage here: `key` has a * for the stage.
Settings document_in_every_stage(const Setting& s, const std::string& key, const Config& so_far) {
  Settings out;
  if (!truth_of(s)) return out;
  const std::size_t star = key.find('*');
  for (std::size_t stage = 0; stage < std::max<std::size_t>(1, so_far.data.size()); ++stage)
    out.push_back({text(key.substr(0, star), stage, key.substr(star + 1)), {"document"}, s.place});
  return out;
}

/// Megatron and nanotron pad the vocabulary so that each tensor parallel rank has a multiple.
Settings times_tp(const Setting& s, const std::string& key, const Config& so_far) {
  constexpr std::int64_t kMost = 1'000'000;
  const std::int64_t multiple = whole_or_throw(s);
  require<ConfigError>(0 < multiple && multiple <= kMost, s.path, " = ", multiple, " is not between 1 and ", kMost);
  return one(s, key, {multiple * so_far.parallelism.tp});
}

Settings shard_degree(const Setting& s, const std::string& key, const Config& so_far) {
  const std::int64_t shard = whole_or_throw(s);
  require<ConfigError>(shard <= 1'000'000, s.path, " = ", shard, " is too large");
  return one(s, key, {shard < 0 ? shard : shard * so_far.parallelism.replicate});
}
Settings fsdp_if_sharded(const Setting& s, const std::string& key, const Config&) {
  return one(s, key, {std::int64_t{whole_or_throw(s) == 1 ? 0 : 3}});
}

/// Regular expressions of nanotron's names become patterns of ours. One that matches nothing stays, as an expression.
Settings nanotron_no_decay(const Setting& s, const std::string& key, const Config& so_far) {
  std::vector<std::string> expressions;
  const auto* list = std::get_if<Values>(&s.value.data);
  require<ConfigError>(list != nullptr, s.path, " = ", brief(s.value), " is not a list of regular expressions");
  for (const Value& expression : *list) expressions.push_back(word_of(expression));
  const NoDecay translated = translate_no_decay(expressions, so_far.model);
  Values patterns;
  for (const std::string& pattern : translated.patterns) patterns.push_back({pattern});
  for (const std::string& expression : translated.unmatched) patterns.push_back({"re:" + expression});
  return one(s, key, {std::move(patterns)});
}

/// torchtitan's dataset is a name; dataset_path takes precedence.
Settings dataset_unless_path(const Setting& s, const std::string& key, const Config& so_far) {
  const bool has_path =
      !so_far.data.empty() && !so_far.data[0].sources.empty() && !so_far.data[0].sources[0].path.empty();
  return has_path ? Settings{} : one(s, key, s.value);
}

/// Of Megatron's GPT-2 tokenizer, beside --merge-file; --tokenizer-model takes precedence.
Settings vocab_file(const Setting& s, const std::string& key, const Config& so_far) {
  if (!so_far.tokenizer.path.empty()) return {};
  const std::string file = word_of(s.value);
  require<NoCounterpart>(file == "vocab.json" || file.ends_with("/vocab.json"), s.path, " = ", brief(s.value),
                         ": a vocabulary has the name vocab.json here, and its merges are merges.txt beside it; copy "
                         "both files to a folder under these names");
  return one(s, key, s.value);
}

/// Megatron has a separate TensorBoard folder, ours is in the run folder; --save takes precedence if both are given.
Settings folder_unless_given(const Setting& s, const std::string& key, const Config& so_far) {
  Settings out = one(s, "metrics.tensorboard", {true});
  if (so_far.run.dir == RunConfig{}.dir) out.push_back({key, s.value, s.place});
  return out;
}

/// Megatron gives layers per chunk, we give chunks per rank.
Settings layers_of_virtual_stage(const Setting& s, const std::string& key, const Config& so_far) {
  const std::int64_t per_chunk = whole_or_throw(s), layers = so_far.model.num_hidden_layers, pp = so_far.parallelism.pp;
  require<ConfigError>(per_chunk > 0 && layers % (pp * per_chunk) == 0, s.path, " = ", per_chunk, ": ", layers,
                       " layers are no whole number of chunks on ", pp, " pipeline ranks");
  return virtual_stages({s.path, {layers / (pp * per_chunk)}, s.place}, key, so_far);
}

/// Only used if profiling is switched on, as in Megatron and DeepSpeed.
Settings first_profiled(const Setting& s, const std::string& key, const Config& so_far) {
  const std::int64_t first = whole_or_throw(s);
  if (so_far.profiler.steps.empty()) return {};
  return profiled(s, key, first, std::max(first, so_far.profiler.steps.back()) + 1);
}
Settings last_profiled(const Setting& s, const std::string& key, const Config& so_far) {
  const std::int64_t end = whole_or_throw(s);
  if (so_far.profiler.steps.empty()) return {};
  return profiled(s, key, std::min(so_far.profiler.steps.front(), end - 1), end);
}

}  // namespace translations

FlagWords words_of(Translation translation) {
  using namespace translations;
  const auto is = [&](auto... known) { return ((translation == known) || ...); };
  if (is(weights_and_paths)) return FlagWords::many;
  return is(as_truth, not_of, bfloat16_if_true, float16_if_true, float32_if_true, selective_if_true, full_if_true,
            document_if_true, one_if_true, three_if_true, profile)
             ? FlagWords::none
             : FlagWords::one;
}

bool refines(Translation translation) {
  using namespace translations;
  const auto is = [&](auto... known) { return ((translation == known) || ...); };
  return is(beta1, beta2, dataset_unless_path, vocab_file, folder_unless_given, first_profiled, last_profiled,
            constant_warmup, wsd_style, hf_warmup_ratio, hf_constant, hf_time_scale, hf_wsd_style, peak_lr,
            if_positive);
}

}  // namespace trireme::config
