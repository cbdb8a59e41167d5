#pragma once
// Our [model] section as a Hugging Face config.json, which transformers and hf_config.hpp read.
#include <cstdint>
#include <optional>
#include <string>

#include "trireme/config/schema/config.hpp"

namespace trireme::config {

/// Where nothing is given, config.json says null: silence would mean the ids of the family's first model.
struct HfTokenIds {
  std::optional<std::int64_t> bos, eos, pad;
};

/// For gpt2, llama, mistral, qwen2 and qwen3, after derive(). `dtype`: of the weights beside it ("bfloat16", "float16",
/// "float32", "float64"). ConfigError for other families and for what transformers' class of that family does not have
/// and would compute otherwise (a window in a llama, norms of q and k outside qwen3): it lists all of it. Read by
/// read_hf_config(), everything that matters to the family comes back; preset, hf, init and dtype are not of
/// config.json.
std::string hf_config_json(const ModelConfig& model, const std::string& dtype, const HfTokenIds& tokens = {});

}  // namespace trireme::config
