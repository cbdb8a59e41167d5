#pragma once
// Writes our [model] section as a Hugging Face config.json, readable by transformers and hf_config.hpp.
#include <cstdint>
#include <optional>
#include <string>

#include "trireme/config/schema/config.hpp"

namespace trireme::config {

/// An id that is not given is written as null: if omitted, the default of the family's class would apply.
struct HfTokenIds {
  std::optional<std::int64_t> bos, eos, pad;
};

/// For gpt2, llama, mistral, qwen2 and qwen3, after derive(). `dtype`: of the weights in the same folder ("bfloat16",
/// "float16", "float32", "float64"). ConfigError for other families and for features that transformers' class of that
/// family lacks and would compute differently (a window in a llama, norms of q and k outside qwen3); it lists all of
/// them. read_hf_config() reads back everything that matters for the family; preset, hf, init and dtype are not part of
/// config.json.
std::string hf_config_json(const ModelConfig& model, const std::string& dtype, const HfTokenIds& tokens = {});

/// For a model that hf_config_json() refuses: all keys of [model], for reading them back here. Its model_type is
/// kOwnTypePrefix and the family, which transformers does not know: it would load the weights and compute something
/// else.
inline constexpr const char* kOwnTypePrefix = "trireme_";
std::string own_config_json(ModelConfig model, const std::string& dtype, const HfTokenIds& tokens = {});

/// "" if hf_config_json() writes the model, else its reasons.
std::string what_transformers_lacks(const ModelConfig& model, const std::string& dtype);

}  // namespace trireme::config
