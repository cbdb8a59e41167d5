#pragma once
// nanotron's names of parameters.
#include <string>
#include <vector>

#include "trireme/config/schema/config.hpp"

namespace trireme::config {

/// nanotron's parameter with the same values: "model.decoder.3.pp_block.attn.qkv_proj.weight" for
/// "layers.3.attention.qkv.weight". InternalError for a parameter that its llama and qwen2 do not have.
std::string nanotron_name(const std::string& ours);

struct NoDecay {
  std::vector<std::string> patterns;   // for our names: globs
  std::vector<std::string> unmatched;  // those of nanotron's that match none of its parameters
};
/// The patterns that match the parameters which nanotron's regular expressions match (from the beginning of a name, as
/// Python's re.match). ConfigError for one that is none.
NoDecay translate_no_decay(const std::vector<std::string>& expressions, const ModelConfig& model);

}  // namespace trireme::config
