#pragma once
// The comparison of many layouts with one rank.
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/parity/training.hpp"
#include "trireme/base/error.hpp"

namespace trireme::parity {

/// Trains every cell as threads and as one rank: fails for each that differs. Prints how much was compared.
inline void expect_equals_one_rank(const std::vector<TrainingCell>& cells) {
  std::map<std::string, Outcome> references;  // by what does not depend on the layout
  std::size_t tensors = 0, done = 0;
  for (const TrainingCell& cell : cells) {
    const ModelConfig& m = cell.base.model;
    const std::string key = text(m.model_type, " ", m.num_hidden_layers, " ", m.num_key_value_heads, " ",
                                 m.sliding_window, " ", m.expert_capacity_factor, " ", cell.documents, cell.optimizer);
    if (!references.contains(key)) references[key] = train_plainly(cell);
    const Outcome& reference = references.at(key);
    SCOPED_TRACE(cell.str());
    const auto lines = judged(train_as_threads(cell), reference, {.parameter = cell.optimizer == "sgd" ? 1e-12 : 1e-9});
    EXPECT_TRUE(lines.empty()) << cell.str() << ": " << lines.size() << " differences, first\n  " << lines[0];
    tensors += reference.gradients.size() + reference.parameters.size();
    if (++done % 500 == 0) std::cout << "  " << done << " of " << cells.size() << " cells\n" << std::flush;
  }
  std::cout << "  " << cells.size() << " cells, " << tensors << " tensors compared\n";
}

}  // namespace trireme::parity
