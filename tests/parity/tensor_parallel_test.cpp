// Parity of tensor and sequence parallelism with one rank, over all factors that may affect results.
#include <cstdlib>
#include <iostream>

#include <gtest/gtest.h>

#include "tests/parity/tensor_parallel_cells.hpp"

namespace trireme::parity {
namespace {

void expect_parity(const std::vector<Cell>& cells) {
  References references;
  std::size_t gradients = 0;
  for (const Cell& cell : cells) {
    const Outcome& reference = references.of(cell);
    const Outcome outcome = run_as_threads(cell);
    const auto lines = judged(outcome, reference);
    EXPECT_TRUE(lines.empty()) << cell.str() << ": " << lines.size() << " differences, first\n  " << lines[0];
    // Not vacuous: compared with something else, everything must differ.
    const std::size_t all = reference.activations.size() + reference.gradients.size() + reference.parameters.size() +
                            reference.losses.size() + 1;
    EXPECT_EQ(differences(outcome, rolled(reference)).size(), all) << cell.str();
    gradients += reference.gradients.size();
  }
  std::cout << "  " << cells.size() << " cells, " << gradients << " gradients compared, " << references.size()
            << " references\n";
}

std::vector<Cell> cells_of(const std::vector<Choice>& choices) {
  std::vector<Cell> cells;
  for (const Choice& choice : choices) cells.push_back(cell_of(choice));
  return cells;
}

/// All valid cells in a campaign, else a subset that covers all quadruples of values.
TEST(TensorParallelParity, EveryCellEqualsOneRank) {
  const std::vector<Choice> all = all_choices();
  const std::vector<Cell> cells = cells_of(std::getenv("TRIREME_CAMPAIGN") != nullptr ? all : covering(all));
  EXPECT_GE(cells.size(), 60u);
  expect_parity(cells);
}

TEST(TensorParallelParity, OtherShapes) {
  std::vector<Cell> cells;
  {
    Choice odd{};  // three heads on three ranks
    Cell cell = cell_of(odd);
    cell.model.num_attention_heads = cell.model.num_key_value_heads = 3;
    cell.model.head_dim = 24;
    cell.degrees.tp = 3;
    for (const bool sp : {false, true}) {
      cell.sequence_parallel = sp;
      cells.push_back(cell);
    }
  }
  {
    Cell cell = cell_of({1, 2, 1, 1, 0, 0, 1, 0});  // sliding window, scaled RoPE
    cell.model.sliding_window = 5;
    cell.model.rope_scaling = {"llama3", 8, 1, 4, 16};
    cells.push_back(cell);
  }
  for (const int kind : {0, 1, 2}) {  // gradient accumulation over several microbatches, before the sum over ranks
    Cell cell = cell_of({kind, 1, 1, 0, 0, 1, 0, 1});
    cell.microbatches = 2;
    cells.push_back(cell);
  }
  for (const char* frozen : {"embedding", "attention", "weight", "layers.0", "layers"})
    for (const auto mode : {config::Recompute::none, config::Recompute::selective, config::Recompute::full}) {
      Cell cell = cell_of({2, 1, 1, 0, 1, 1, 0, 0});
      cell.frozen = frozen;
      cell.recompute = mode;
      cells.push_back(cell);
    }
  expect_parity(cells);
}

TEST(Recompute, ChangesNoBit) {
  for (const int family_of : {0, 1, 2})
    for (const int ranks : {0, 1}) {
      Outcome without;
      for (const auto mode : {config::Recompute::none, config::Recompute::selective, config::Recompute::full}) {
        Cell cell = cell_of({family_of, ranks, ranks, 0, 0, 1, 0, 0});
        cell.recompute = mode;
        const Outcome outcome = run_as_threads(cell);
        if (mode == config::Recompute::none) without = outcome;
        EXPECT_EQ(outcome.losses, without.losses) << cell.str();
        for (std::size_t i = 0; i < without.gradients.size(); ++i)
          EXPECT_TRUE(outcome.gradients[i].second.equal(without.gradients[i].second))
              << cell.str() << " " << without.gradients[i].first;
      }
    }
}

}  // namespace
}  // namespace trireme::parity
