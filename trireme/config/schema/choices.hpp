#pragma once
// Keys with a closed set of values. The config holds the word as it was written; the program compares enums.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::config {

/// checks.non_finite
enum class NonFinite { stop, skip };
/// comm.backend; automatic: nccl on a GPU, else gloo
enum class CommBackend { automatic, gloo, nccl };
/// model.rope_scaling.rope_type; plain: "" or "default"
enum class RopeKind { plain, linear, dynamic, yarn, llama3 };
/// model.scoring_func
enum class RouterScoring { softmax, sigmoid };
/// model.router_aux_loss_type
enum class RouterBalance { sample, hf };
/// lr_scheduler.warmup_shape
enum class LrWarmup { linear, log };
/// lr_scheduler.decay
enum class LrDecay { constant, linear, cosine, one_minus_sqrt, exponential, inverse_sqrt };

/// data.N.attention, data.N.positions; automatic: document for data with a loss mask, else sample
enum class DataScope { automatic, document, sample };
enum class Packing { automatic, cut, whole };
enum class Initializer { automatic, normal, scaled, depth_scaled, torchtitan };

// ConfigError for an unknown word.
NonFinite parse_non_finite(std::string_view word);
CommBackend parse_comm_backend(std::string_view word);
RopeKind parse_rope_kind(std::string_view word);
RouterScoring parse_router_scoring(std::string_view word);
RouterBalance parse_router_balance(std::string_view word);
LrWarmup parse_lr_warmup(std::string_view word);
LrDecay parse_lr_decay(std::string_view word);
DataScope parse_data_scope(std::string_view word);
Packing parse_packing(std::string_view word);
Initializer parse_initializer(std::string_view word);

std::vector<std::string> non_finite_words();
std::vector<std::string> comm_backend_words();
std::vector<std::string> rope_kind_words();
std::vector<std::string> router_scoring_words();
std::vector<std::string> router_balance_words();
std::vector<std::string> lr_warmup_words();
std::vector<std::string> lr_decay_words();
std::vector<std::string> data_scope_words();
std::vector<std::string> packing_words();
std::vector<std::string> initializer_words();

/// parallelism.zero_unit: what ZeRO 3 gathers and frees at once.
struct ZeroUnit {
  enum class Kind { layers, model };
  Kind kind = Kind::layers;
  std::int64_t layers = 1;  // of a unit; only for Kind::layers

  bool operator==(const ZeroUnit&) const = default;
};
/// "layer", "model" or a number of layers; nullopt for anything else.
std::optional<ZeroUnit> parse_zero_unit(std::string_view word);

}  // namespace trireme::config
