#include "trireme/config/schema/choices.hpp"

#include <charconv>
#include <utility>

#include "trireme/base/error.hpp"

namespace trireme::config {
namespace {

template <class Enum>
using Words = std::vector<std::pair<const char*, Enum>>;

const Words<NonFinite> kNonFinite = {{"stop", NonFinite::stop}, {"skip", NonFinite::skip}};
const Words<CommBackend> kCommBackend = {
    {"auto", CommBackend::automatic}, {"gloo", CommBackend::gloo}, {"nccl", CommBackend::nccl}};
const Words<RopeKind> kRopeKind = {{"", RopeKind::plain},        {"default", RopeKind::plain},
                                   {"linear", RopeKind::linear}, {"dynamic", RopeKind::dynamic},
                                   {"yarn", RopeKind::yarn},     {"llama3", RopeKind::llama3}};
const Words<RouterScoring> kRouterScoring = {{"softmax", RouterScoring::softmax}, {"sigmoid", RouterScoring::sigmoid}};
const Words<RouterBalance> kRouterBalance = {{"sample", RouterBalance::sample}, {"hf", RouterBalance::hf}};
const Words<LrWarmup> kLrWarmup = {{"linear", LrWarmup::linear}, {"log", LrWarmup::log}};
const Words<LrDecay> kLrDecay = {{"linear", LrDecay::linear},
                                 {"cosine", LrDecay::cosine},
                                 {"1-sqrt", LrDecay::one_minus_sqrt},
                                 {"exponential", LrDecay::exponential},
                                 {"inverse-sqrt", LrDecay::inverse_sqrt},
                                 {"constant", LrDecay::constant}};
const Words<DataScope> kDataScope = {
    {"auto", DataScope::automatic}, {"document", DataScope::document}, {"sample", DataScope::sample}};

const Words<Packing> kPacking = {{"auto", Packing::automatic}, {"cut", Packing::cut}, {"whole", Packing::whole}};
const Words<Initializer> kInitializer = {{"auto", Initializer::automatic},
                                         {"normal", Initializer::normal},
                                         {"scaled", Initializer::scaled},
                                         {"depth-scaled", Initializer::depth_scaled},
                                         {"torchtitan", Initializer::torchtitan}};

constexpr std::int64_t kMaxUnitLayers = 999'999;

template <class Enum>
std::vector<std::string> words_of_choice(const Words<Enum>& words) {
  std::vector<std::string> out;
  for (const auto& [word, value] : words) out.emplace_back(word);
  return out;
}

template <class Enum>
Enum parse_choice(const char* key, std::string_view word, const Words<Enum>& words) {
  std::string known;
  for (const auto& [name, value] : words) {
    if (word == name) return value;
    known += text(known.empty() ? "" : ", ", *name ? name : "\"\"");
  }
  throw ConfigError(text(key, " = \"", word, "\" is not one of: ", known));
}

}  // namespace

NonFinite parse_non_finite(std::string_view word) { return parse_choice("checks.non_finite", word, kNonFinite); }
CommBackend parse_comm_backend(std::string_view word) { return parse_choice("comm.backend", word, kCommBackend); }
RopeKind parse_rope_kind(std::string_view word) {
  return parse_choice("model.rope_scaling.rope_type", word, kRopeKind);
}
RouterScoring parse_router_scoring(std::string_view word) {
  return parse_choice("model.scoring_func", word, kRouterScoring);
}
RouterBalance parse_router_balance(std::string_view word) {
  return parse_choice("model.router_aux_loss_type", word, kRouterBalance);
}
LrWarmup parse_lr_warmup(std::string_view word) { return parse_choice("lr_scheduler.warmup_shape", word, kLrWarmup); }
LrDecay parse_lr_decay(std::string_view word) { return parse_choice("lr_scheduler.decay", word, kLrDecay); }

DataScope parse_data_scope(std::string_view word) {
  return parse_choice("attention or positions of [[data]]", word, kDataScope);
}

Packing parse_packing(std::string_view word) { return parse_choice("packing of [[data]]", word, kPacking); }
Initializer parse_initializer(std::string_view word) { return parse_choice("model.initializer", word, kInitializer); }

std::vector<std::string> non_finite_words() { return words_of_choice(kNonFinite); }
std::vector<std::string> comm_backend_words() { return words_of_choice(kCommBackend); }
std::vector<std::string> rope_kind_words() { return words_of_choice(kRopeKind); }
std::vector<std::string> router_scoring_words() { return words_of_choice(kRouterScoring); }
std::vector<std::string> router_balance_words() { return words_of_choice(kRouterBalance); }
std::vector<std::string> lr_warmup_words() { return words_of_choice(kLrWarmup); }
std::vector<std::string> lr_decay_words() { return words_of_choice(kLrDecay); }

std::vector<std::string> packing_words() { return words_of_choice(kPacking); }
std::vector<std::string> initializer_words() { return words_of_choice(kInitializer); }
std::vector<std::string> data_scope_words() { return words_of_choice(kDataScope); }

std::optional<ZeroUnit> parse_zero_unit(std::string_view word) {
  if (word == "layer") return ZeroUnit{};
  if (word == "model") return ZeroUnit{ZeroUnit::Kind::model, 0};
  std::int64_t layers = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), layers);
  if (error != std::errc() || end != word.data() + word.size() || layers < 1 || layers > kMaxUnitLayers)
    return std::nullopt;
  return ZeroUnit{ZeroUnit::Kind::layers, layers};
}

}  // namespace trireme::config
