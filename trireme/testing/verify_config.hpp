#pragma once
// A model that every layout of up to 4 ranks can hold, small enough to verify in float64.
#include <string>
#include <vector>

#include "trireme/testing/config_helpers.hpp"

namespace trireme {

inline constexpr const char* kVerifiedModel = R"(
model.hidden_size = 20
model.num_hidden_layers = 3
model.num_attention_heads = 4
model.num_key_value_heads = 2
model.head_dim = 6
model.intermediate_size = 32
model.vocab_size = 67
training.seq_len = 16
training.global_batch_size = 8
training.micro_batch_size = 1
data = [ { sources = [ { path = "synthetic" } ] } ]
)";

/// `settings`: "parallelism.tp 2".
inline Config config_for(const std::string& family, const std::vector<std::string>& settings, int ranks) {
  Flags flags{"--model.model_type", family};
  for (const std::string& setting : settings) {
    const std::size_t space = setting.find(' ');
    flags.insert(flags.end(), {"--" + setting.substr(0, space), setting.substr(space + 1)});
  }
  return load_good(kVerifiedModel, flags, {.ranks = ranks, .how = "", .ranks_of_a_host = ranks}).config;
}

}  // namespace trireme
