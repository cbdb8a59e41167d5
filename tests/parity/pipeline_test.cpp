// Parity of pipelines, combined with all other axes, with one rank: losses, all gradients, norms, all parameters and
// optimizer states after five steps. The schedule's peak of live microbatches is checked in every step.
#include <algorithm>
#include <cstdlib>

#include <gtest/gtest.h>

#include "tests/parity/compare_cells.hpp"
#include "tests/parity/covering.hpp"
#include "trireme/schedule/generate.hpp"

namespace trireme::parity {
namespace {

/// Indices of a choice.
struct By {
  enum : std::size_t { ranks, schedule, microbatches, tensor, data, stage, tied, recompute, units, all };
};
using PipelineChoice = std::array<int, By::all>;
constexpr PipelineChoice kPipelineValues{2, 6, 4, 3, 2, 4, 2, 3, 2};
constexpr int kMaxRanks = 8;

TrainingCell pipeline_cell(const PipelineChoice& c) {
  TrainingCell cell;
  ModelConfig& m = cell.base.model;
  const bool tied = c[By::tied] == 1;
  m.model_type = tied ? "gpt2" : "llama";
  m.hidden_size = 12;
  m.num_attention_heads = 2;
  m.num_key_value_heads = tied ? 2 : 1;
  m.head_dim = tied ? 6 : 4;
  m.intermediate_size = 22;
  m.vocab_size = 37;
  m.max_position_embeddings = 8;
  m.hidden_act = tied ? "gelu_new" : "silu";
  m.tie_word_embeddings = tied;
  cell.base.batch = 48;  // divisible by all numbers of microbatches times dp
  cell.base.length = 6;
  cell.base.degrees.pp = 2 << c[By::ranks];
  cell.base.degrees.dp = 1 << c[By::data];
  cell.base.degrees.tp = c[By::tensor] == 0 ? 1 : 2;
  cell.base.sequence_parallel = c[By::tensor] == 2;
  cell.base.recompute = static_cast<config::Recompute>(c[By::recompute]);
  cell.schedule = std::array{
      "afab", "1f1b", "interleaved-1f1b", "zb1p", "zbv", "dualpipe-v"}[static_cast<std::size_t>(c[By::schedule])];
  cell.virtual_stages = cell.schedule == "interleaved-1f1b" ? 2 : 1;
  cell.accumulation = std::array{1, 2, 3, 8}[static_cast<std::size_t>(c[By::microbatches])];
  const int chunks = schedule::make_schedule(cell.schedule, cell.base.degrees.pp, 1, cell.virtual_stages).chunks();
  m.num_hidden_layers = std::max(4, chunks);
  cell.zero.stage = c[By::stage];
  cell.zero.bucket_mb = 0.004;
  cell.zero.persistence_threshold = c[By::units] == 0 ? 0 : 100;
  cell.zero.max_reuse_distance = c[By::units] == 0 ? 0 : 1'000;
  cell.zero.reshard_after_forward = c[By::units] == 0;
  cell.max_norm = 0.4;
  cell.optimizer = c[By::stage] % 2 == 0 ? "sgd" : "adamw";
  return cell;
}

bool is_legal(const PipelineChoice& c) {
  return (2 << c[By::ranks]) * (1 << c[By::data]) * (c[By::tensor] == 0 ? 1 : 2) <= kMaxRanks;
}

/// In a campaign all cells that need at most kMaxRanks ranks, the units alternating; else a set that covers all pairs.
std::vector<PipelineChoice> cells(bool all) {
  std::vector<PipelineChoice> choices;
  PipelineChoice values = kPipelineValues;
  if (all) values[By::units] = 1;
  for (PipelineChoice choice : all_combinations(values)) {
    if (!is_legal(choice)) continue;
    if (all) choice[By::units] = static_cast<int>(choices.size()) % 2;
    choices.push_back(choice);
  }
  if (all) return choices;
  // Every pair of values is in a fraction of them already, and the search is quadratic.
  std::vector<PipelineChoice> some;
  for (std::size_t i = 0; i < choices.size(); i += 23) some.push_back(choices[i]);
  std::vector<PipelineChoice> chosen = covering(some, 2);
  for (std::size_t i = 5; chosen.size() < 42; i += 29) chosen.push_back(some[i % some.size()]);
  return chosen;
}

TEST(PipelineParity, EveryCellEqualsOneRank) {
  std::vector<TrainingCell> chosen;
  for (const auto& choice : cells(std::getenv("TRIREME_CAMPAIGN") != nullptr)) chosen.push_back(pipeline_cell(choice));
  EXPECT_GE(chosen.size(), 40u);
  expect_equals_one_rank(chosen);
}

/// With the same microbatches the same additions happen in the same order: bitwise equal, also with deferred weight
/// gradients.
TEST(PipelineParity, GradientsAreTheBitsOfOneStage) {
  for (const int stage : {0, 1})
    for (int schedule = 0; schedule < kPipelineValues[By::schedule]; ++schedule) {
      TrainingCell cell = pipeline_cell({0, schedule, 2, 0, 1, stage, 0, 0, 0});
      cell.steps = 1;
      TrainingCell one = cell;
      one.base.degrees.pp = one.virtual_stages = 1;
      // The loss computes its gradients in forward or, with several microbatches in flight, in backward.
      const schedule::Schedule made = schedule::make_schedule(cell.schedule, 2, cell.accumulation, cell.virtual_stages);
      const auto last = static_cast<std::size_t>(made.rank_of_chunk.back());
      one.schedule = schedule::microbatches_in_flight(made.programs[last]) > 1 ? "afab" : "1f1b";
      const Outcome found = train_as_threads(cell), wanted = train_as_threads(one);
      ASSERT_EQ(found.gradients.size(), wanted.gradients.size());
      for (std::size_t i = 0; i < wanted.gradients.size(); ++i)
        EXPECT_TRUE(found.gradients[i].second.equal(wanted.gradients[i].second))
            << cell.str() << ": " << wanted.gradients[i].first;
    }
}

}  // namespace
}  // namespace trireme::parity
