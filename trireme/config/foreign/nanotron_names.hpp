#pragma once
// nanotron's names of parameters, for its regular expressions of parameters without weight decay.
#include <string>
#include <vector>

#include "trireme/config/schema/config.hpp"

namespace trireme::config {

struct NoDecay {
  std::vector<std::string> patterns;   // for our names: globs
  std::vector<std::string> unmatched;  // those of nanotron's that match none of its parameters
};
/// The patterns that match the parameters which nanotron's regular expressions match (from the beginning of a name, as
/// Python's re.match). ConfigError for one that is none.
NoDecay translate_no_decay(const std::vector<std::string>& expressions, const ModelConfig& model);

}  // namespace trireme::config
