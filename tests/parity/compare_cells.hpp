#pragma once
// The comparison of many layouts with one rank.
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/parity/training.hpp"
#include "trireme/base/error.hpp"

namespace trireme::parity {

/// With TRIREME_PART=i/n, for a machine with many cores: those of the i-th of n processes, counted from 0.
inline std::vector<TrainingCell> part_of(const std::vector<TrainingCell>& cells) {
  const char* part = std::getenv("TRIREME_PART");
  if (!part) return cells;
  char* rest = nullptr;
  const std::size_t first = std::strtoul(part, &rest, 10),
                    parts = *rest == '/' ? std::strtoul(rest + 1, nullptr, 10) : 0;
  require(first < parts, "TRIREME_PART is ", part, ": must be i/n with i < n, such as 0/4");
  std::vector<TrainingCell> mine;
  for (std::size_t i = first; i < cells.size(); i += parts) mine.push_back(cells[i]);
  return mine;
}

/// Trains every cell as threads and as one rank: fails for each that differs. Prints how much was compared.
inline void expect_equals_one_rank(const std::vector<TrainingCell>& all) {
  const std::vector<TrainingCell> cells = part_of(all);
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
