#pragma once
// Do the ranks that hold the same part of a tensor hold the same bits? By the hashes that they tell each other.
#include <string>
#include <vector>

namespace trireme {

/// The hash of a part of a tensor.
struct HeldPart {
  std::string what;  // "layers.1.mlp_norm.weight (model) [0:64]"
  std::string hash;
};

/// A line for each; and the inverse.
std::string lines_of(const std::vector<HeldPart>& parts);
std::vector<HeldPart> held_parts_in(const std::string& lines);

/// What is wrong with the parts of all ranks, by rank; empty: ranks that hold the same part agree. `numbers`: those of
/// the ranks, for the message; none: 0, 1, ...
std::string differences_of_replicas(const std::vector<std::vector<HeldPart>>& ranks,
                                    const std::vector<int>& numbers = {});

}  // namespace trireme
