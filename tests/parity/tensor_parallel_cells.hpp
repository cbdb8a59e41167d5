#pragma once
// The parity cells for tensor and sequence parallelism: all combinations of the factors that may affect results, or a
// covering subset.
#include <array>
#include <vector>

#include "tests/parity/parity.hpp"

namespace trireme::parity {

/// The factors of a cell: each is an index into its values.
enum Factor { family, tp, sequence, kv, bias, dropout, recompute, ignores, kFactors };
using Choice = std::array<int, kFactors>;

Cell cell_of(const Choice& choice);
/// All meaningful combinations: GPT-2 always has biases and as many KV heads as heads.
std::vector<Choice> all_choices();
/// A subset that covers every possible combination of values of any four factors: far more than pairs.
std::vector<Choice> covering(const std::vector<Choice>& all);

}  // namespace trireme::parity
