// Tensor and sequence parallelism against one rank, over all that may change their numbers.
#include <cstdlib>
#include <iostream>
#include <map>

#include <gtest/gtest.h>

#include "tests/parity/tensor_parallel_cells.hpp"

namespace trireme::parity {
namespace {

void expect_parity(const std::vector<Choice>& choices) {
  std::map<std::string, Outcome> references;
  std::size_t gradients = 0;
  for (const Choice& choice : choices) {
    const Cell cell = cell_of(choice);
    const std::string key = on_one_rank(cell).str();
    if (!references.contains(key)) references[key] = run_as_threads(on_one_rank(cell));
    const Outcome& reference = references.at(key);
    const Outcome outcome = run_as_threads(cell);
    const auto lines = differences(outcome, reference);
    EXPECT_TRUE(lines.empty()) << cell.str() << ": " << lines.size() << " differences, first\n  " << lines[0];
    // Not vacuous: everything is found wrong when it is compared with something else.
    const std::size_t wanted = reference.activations.size() + reference.gradients.size() + reference.parameters.size() +
                               reference.losses.size() + 1;
    EXPECT_EQ(differences(outcome, rolled(reference)).size(), wanted) << cell.str();
    gradients += reference.gradients.size();
  }
  std::cout << "  " << choices.size() << " cells, " << gradients << " gradients compared, " << references.size()
            << " references\n";
}

TEST(TensorParallelParity, CellsThatCoverAllQuadruples) {
  const std::vector<Choice> cells = covering(all_choices());
  EXPECT_GE(cells.size(), 60u);
  expect_parity(cells);
}

TEST(TensorParallelParityCampaign, AllLegalCells) {
  if (std::getenv("TRIREME_CAMPAIGN") == nullptr) GTEST_SKIP() << "long: make campaign runs it";
  expect_parity(all_choices());
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
    Cell cell = cell_of({1, 2, 1, 1, 0, 0, 1, 0});  // a window, scaled RoPE
    cell.model.sliding_window = 5;
    cell.model.rope_scaling = {"llama3", 8, 1, 4, 16};
    cells.push_back(cell);
  }
  for (const Cell& cell : cells) {
    const auto lines = differences(run_as_threads(cell), run_as_threads(on_one_rank(cell)));
    EXPECT_TRUE(lines.empty()) << cell.str() << ": " << lines.size() << " differences, first\n  " << lines[0];
  }
}

TEST(Recompute, ChangesNoBit) {
  for (const int family_of : {0, 1, 2})
    for (const int ranks : {0, 1}) {
      Outcome without;
      for (const auto mode : {Recompute::none, Recompute::selective, Recompute::full}) {
        Cell cell = cell_of({family_of, ranks, ranks, 0, 0, 1, 0, 0});
        cell.recompute = mode;
        const Outcome outcome = run_as_threads(cell);
        if (mode == Recompute::none) without = outcome;
        EXPECT_EQ(outcome.losses, without.losses) << cell.str();
        for (std::size_t i = 0; i < without.gradients.size(); ++i)
          EXPECT_TRUE(outcome.gradients[i].second.equal(without.gradients[i].second))
              << cell.str() << " " << without.gradients[i].first;
      }
    }
}

}  // namespace
}  // namespace trireme::parity
