#include "trireme/config/foreign/translations.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <sstream>

#include "trireme/base/error.hpp"
#include "trireme/config/read/convert.hpp"
#include "trireme/config/schema/counts.hpp"

namespace trireme::config {
namespace {

using Words = std::map<std::string, Value>;

std::string lower(std::string word) {
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return word;
}

/// A string as it is, anything else in TOML syntax.
std::string word_of(const Value& value) {
  const bool is_text = std::holds_alternative<std::string>(value.data) || std::holds_alternative<RawText>(value.data);
  return is_text ? plain_text(value) : str(value);
}

std::optional<double> number_of(const Value& value) {
  return std::holds_alternative<std::string>(value.data) ? plain_number({RawText{plain_text(value)}})
                                                         : plain_number(value);
}

double number_or_throw(const Setting& s) {
  const auto number = number_of(s.value);
  require<ConfigError>(number.has_value() && std::isfinite(*number), s.path, " = ", brief(s.value), " is not a number");
  return *number;
}

std::int64_t whole_or_throw(const Setting& s) {
  const double number = number_or_throw(s);
  require<ConfigError>(std::floor(number) == number && std::abs(number) < 1e15, s.path, " = ", brief(s.value),
                       " is not a whole number");
  return static_cast<std::int64_t>(number);
}

/// true, false, a flag without a value, or "true"/"1".
bool truth_of(const Setting& s) {
  if (const auto* v = std::get_if<bool>(&s.value.data)) return *v;
  const std::string word = lower(word_of(s.value));
  if (word.empty() || word == "true" || word == "1") return true;
  require<ConfigError>(word == "false" || word == "0", s.path, " = ", brief(s.value), " is not true or false");
  return false;
}

Settings one(const Setting& s, const std::string& key, Value value) { return {{key, std::move(value), s.place}}; }

Settings if_true(const Setting& s, const std::string& key, Value value) {
  return truth_of(s) ? one(s, key, std::move(value)) : Settings{};
}

/// Translates a word by the table; ConfigError lists the words that have a counterpart.
Settings by_table(const Setting& s, const std::string& key, const Words& table) {
  const auto it = table.find(lower(word_of(s.value)));
  if (it == table.end()) {
    std::string known;
    for (const auto& [word, value] : table) known += (known.empty() ? "" : ", ") + (word.empty() ? "\"\"" : word);
    throw ConfigError(text(s.path, " = ", brief(s.value), " has no counterpart here (known: ", known, ")"));
  }
  return one(s, key, it->second);
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

Settings schedule(const Setting& s, const std::string& key, const Config&) {
  static const Words words = {{"afab", {"afab"}},         {"gpipe", {"afab"}},
                              {"1f1b", {"1f1b"}},         {"interleaved1f1b", {"interleaved-1f1b"}},
                              {"zbvzerobubble", {"zbv"}}, {"dualpipev", {"dualpipe-v"}}};
  return by_table(s, key, words);
}

Settings decay_style(const Setting& s, const std::string& key, const Config&) {
  static const Words words = {{"linear", {"linear"}},     {"cosine", {"cosine"}},
                              {"1-sqrt", {"1-sqrt"}},     {"sqrt", {"1-sqrt"}},
                              {"constant", {"constant"}}, {"constant_with_warmup", {"constant"}}};
  return by_table(s, key, words);
}

Settings deepspeed_scheduler(const Setting& s, const std::string& key, const Config&) {
  return by_table(s, key, {{"warmuplr", {"constant"}}, {"warmupdecaylr", {"linear"}}, {"warmupcosinelr", {"cosine"}}});
}

/// Adam in Megatron and DeepSpeed uses decoupled weight decay, which is AdamW.
Settings adam_is_adamw(const Setting& s, const std::string& key, const Config&) {
  return by_table(s, key, {{"adam", {"adamw"}}, {"adamw", {"adamw"}}, {"sgd", {"sgd"}}});
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
  require<ConfigError>(*step == -1, s.path, " = ", brief(s.value),
                       " has no counterpart here: set checkpoint.resume to the checkpoint's folder");
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

Settings ratio_of_steps(const Setting& s, const std::string& key, const Config& so_far) {
  const double ratio = number_or_throw(s);
  require<ConfigError>(0 <= ratio && ratio <= 1, s.path, " = ", brief(s.value), " is not between 0 and 1");
  return one(s, key, {static_cast<std::int64_t>(std::llround(ratio * static_cast<double>(so_far.training.steps)))});
}

Settings factor_of_lr(const Setting& s, const std::string& key, const Config& so_far) {
  return one(s, key, {number_or_throw(s) * so_far.optimizer.lr});
}

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

Settings shard_degree(const Setting& s, const std::string& key, const Config& so_far) {
  const std::int64_t shard = whole_or_throw(s);
  require<ConfigError>(shard <= 1'000'000, s.path, " = ", shard, " is too large");
  return one(s, key, {shard < 0 ? shard : shard * so_far.parallelism.replicate});
}
Settings fsdp_if_sharded(const Setting& s, const std::string& key, const Config&) {
  return one(s, key, {std::int64_t{whole_or_throw(s) == 1 ? 0 : 3}});
}

/// torchtitan's dataset is a name; dataset_path takes precedence.
Settings dataset_unless_path(const Setting& s, const std::string& key, const Config& so_far) {
  const bool has_path =
      !so_far.data.empty() && !so_far.data[0].sources.empty() && !so_far.data[0].sources[0].path.empty();
  return has_path ? Settings{} : one(s, key, s.value);
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
            one_if_true, three_if_true, profile)
             ? FlagWords::none
             : FlagWords::one;
}

bool refines(Translation translation) {
  using namespace translations;
  const auto is = [&](auto... known) { return ((translation == known) || ...); };
  return is(beta1, beta2, dataset_unless_path, folder_unless_given, first_profiled, last_profiled);
}

}  // namespace trireme::config
