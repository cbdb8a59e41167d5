#pragma once
// Which cells tensor and sequence parallelism are tried on: what may change their numbers, in all combinations or in
// few that cover them.
#include <array>
#include <vector>

#include "tests/parity/parity.hpp"

namespace trireme::parity {

/// What a cell varies: each an index into its values.
enum Factor { family, tp, sequence, kv, bias, dropout, recompute, ignores, kFactors };
using Choice = std::array<int, kFactors>;

Cell cell_of(const Choice& choice);
/// All that mean something: GPT-2 has biases and as many KV heads as heads anyway.
std::vector<Choice> all_choices();
/// Of these so many that every four values of four factors that can meet have met: far more than pairs.
std::vector<Choice> covering(const std::vector<Choice>& all);

}  // namespace trireme::parity
