// Parity of data parallelism and ZeRO, combined with other features, with one rank: losses, all gradients, norms, all
// parameters and optimizer states after five steps.
#include "tests/parity/training.hpp"

#include <cstdlib>
#include <iostream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/parity/covering.hpp"
#include "trireme/checkpoint/format/reader.hpp"
#include "trireme/testing/temp_folder.hpp"

namespace trireme::parity {
namespace {

enum TrainingFactor { kFamily, kDp, kStage, kTensor, kAccumulation, kRecompute, kClip, kOptimizer, kUnits, kAll };
using TrainingChoice = std::array<int, kAll>;
constexpr TrainingChoice kValues{2, 3, 4, 3, 2, 3, 2, 2, 3};

TrainingCell training_cell(const TrainingChoice& c) {
  TrainingCell cell;
  ModelConfig& m = cell.base.model;
  const bool gpt2 = c[kFamily] == 0;
  m.model_type = gpt2 ? "gpt2" : "llama";
  m.hidden_size = 20;  // sizes that are not powers of two
  m.num_hidden_layers = 3;
  m.num_attention_heads = 4;
  m.num_key_value_heads = gpt2 ? 4 : 1;  // fewer than tp
  m.head_dim = gpt2 ? 5 : 6;
  m.intermediate_size = 46;
  m.vocab_size = 257;
  m.max_position_embeddings = 16;
  m.hidden_act = gpt2 ? "gelu_new" : "silu";
  m.tie_word_embeddings = gpt2;
  cell.base.batch = 12;
  cell.base.length = 8;
  cell.base.degrees.dp = 1 << c[kDp];
  cell.base.degrees.tp = c[kTensor] == 0 ? 1 : 2;
  cell.base.sequence_parallel = c[kTensor] == 2;
  cell.base.recompute = static_cast<config::Recompute>(c[kRecompute]);
  cell.accumulation = c[kAccumulation] == 0 ? 1 : 3;
  cell.zero.stage = c[kStage];
  cell.zero.bucket_mb = 0.02;
  cell.max_norm = c[kClip] == 0 ? 0 : 0.4;
  cell.optimizer = c[kOptimizer] == 0 ? "sgd" : "adamw";
  // Units: each layer separately, freed at once and without prefetch; two layers that are kept, with small parameters
  // persistent; the whole model, without overlap.
  cell.layers_per_unit = std::array{1, 2, 0}[static_cast<std::size_t>(c[kUnits])];
  cell.zero.persistence_threshold = c[kUnits] == 0 ? 0 : 300;
  cell.zero.max_reuse_distance = c[kUnits] == 0 ? 0 : 10'000;
  cell.zero.reshard_after_forward = c[kUnits] != 1;
  cell.zero.contiguous_gradients = c[kUnits] != 1;
  cell.zero.max_live_parameters = c[kUnits] == 0 ? 5'000 : 1'000'000'000;
  cell.zero.reduce_scatter = cell.zero.overlap = c[kUnits] != 2;
  cell.zero.replicate = c[kUnits] == 2 && c[kDp] == 2 ? 2 : 1;
  return cell;
}

/// All combinations of dp, stage, tp, accumulation, recompute and clipping; the other three factors alternate.
std::vector<TrainingChoice> campaign() {
  std::vector<TrainingChoice> choices;
  TrainingChoice values = kValues;
  values[kFamily] = values[kOptimizer] = values[kUnits] = 1;
  for (TrainingChoice choice : all_combinations(values)) {
    const int turn = static_cast<int>(choices.size());
    choice[kFamily] = turn % 2;
    choice[kOptimizer] = turn / 2 % 2;
    choice[kUnits] = turn % 3;
    choices.push_back(choice);
  }
  return choices;
}

/// All cells in a campaign, else a subset that covers all pairs of values.
TEST(TrainingParity, EveryCellEqualsOneRank) {
  const auto choices = std::getenv("TRIREME_CAMPAIGN") != nullptr ? campaign() : covering(campaign(), 2);
  std::map<std::string, Outcome> references;
  std::size_t tensors = 0;
  for (const TrainingChoice& choice : choices) {
    const TrainingCell cell = training_cell(choice);
    const std::string key = text(choice[kFamily], choice[kClip], choice[kOptimizer]);
    if (!references.contains(key)) references[key] = train_plainly(cell);
    const Outcome& reference = references.at(key);
    const Bounds bounds{.parameter = cell.optimizer == "sgd" ? 1e-12 : 1e-9};
    const Outcome outcome = train_as_threads(cell);
    const auto lines = judged(outcome, reference, bounds);
    EXPECT_TRUE(lines.empty()) << cell.str() << ": " << lines.size() << " differences, first\n  " << lines[0];
    tensors += reference.gradients.size() + reference.parameters.size();
  }
  EXPECT_GE(choices.size(), 12u);
  std::cout << "  " << choices.size() << " cells, " << tensors << " tensors compared\n";
}

/// 509 entries: a multiple of 128 on no rank; 5: most ranks of tp 4 have only padding. Weight decay, momentum and Adam
/// leave padding at zero (train_as_threads checks it), and a checkpoint has none.
TEST(TrainingParity, PaddedVocabulariesEqualOneRank) {
  for (const bool is_tied : {true, false})
    for (const int family : {0, 1})
      for (const char* const optimizer : {"adamw", "sgd"})
        for (const std::int64_t entries : {509, 5}) {
          if ((family == 0 && !is_tied) || (entries == 5 && optimizer == std::string("sgd"))) continue;
          TrainingCell cell = training_cell({family, 0, 0, 0, 1, 0, 1, 0, 0});
          cell.base.model.vocab_size = entries;
          cell.base.model.intermediate_size = 48;
          cell.base.model.tie_word_embeddings = is_tied;
          cell.optimizer = optimizer;
          cell.steps = 3;
          const Outcome reference = train_plainly(cell);
          for (const auto [tp, dp, stage] : {std::array{1, 2, 1}, {2, 2, 3}, {4, 1, 2}}) {
            const TempFolder folder;
            cell.base.degrees = {.dp = dp, .tp = tp};
            cell.zero.stage = stage;
            cell.save_to = folder.path();
            SCOPED_TRACE(cell.str());
            const Outcome outcome = train_as_threads(cell);
            const Bounds bounds{.parameter = cell.optimizer == "sgd" ? 1e-12 : 1e-9};
            EXPECT_THAT(judged(outcome, reference, bounds), testing::IsEmpty());
            const checkpoint::Reader saved(folder.path() / "step-3");
            for (const char* const name : {"embedding.weight", "head.weight"})
              for (const std::string kind : {"weight", cell.optimizer == "sgd" ? "momentum_buffer" : "exp_avg"}) {
                const checkpoint::StoredTensor* tensor = checkpoint::find(saved.manifest(), name, kind);
                ASSERT_EQ(tensor != nullptr, !is_tied || name == std::string("embedding.weight")) << name;
                if (tensor == nullptr) continue;
                EXPECT_EQ(tensor->shape, (Shape{entries, 20}));
              }
          }
        }
}

/// The same additions in the same order: bitwise equal, with the norm's of comm.deterministic.
TEST(TrainingParity, StagesAreTheSameBits) {
  const auto deterministic_cell = [](const TrainingChoice& choices) {
    TrainingCell cell = training_cell(choices);
    cell.deterministic = true;
    return cell;
  };
  const auto same = [](const Outcome& a, const Outcome& b) {
    const auto equal = [](const Named& x, const Named& y) {
      for (std::size_t i = 0; i < x.size(); ++i)
        if (x[i].first != y[i].first || !x[i].second.equal(y[i].second)) return false;
      return x.size() == y.size();
    };
    return a.losses == b.losses && a.gradient_norm == b.gradient_norm && equal(a.gradients, b.gradients) &&
           equal(a.parameters, b.parameters);
  };
  for (const int family : {0, 1})
    for (const int tensor : {0, 2}) {
      const TrainingCell plain = deterministic_cell({family, 2, 0, tensor, 0, 0, 1, 1, 0});
      const Outcome reference = train_as_threads(plain);
      for (const int stage : {1, 2, 3})
        for (const int recompute : {0, 2}) {
          const TrainingCell cell =
              deterministic_cell({family, 2, stage, tensor, 0, recompute, 1, 1, stage == 3 ? 1 : 0});
          EXPECT_TRUE(same(train_as_threads(cell), reference)) << cell.str();
        }
      if (tensor != 0) continue;
      TrainingCell one = plain;  // four accumulated microbatches on one rank, instead of one on each of four ranks
      one.base.degrees.dp = 1;
      one.accumulation = 4;
      EXPECT_TRUE(same(train_as_threads(one), reference)) << "accumulated";
      one.accumulation = 3;
      EXPECT_FALSE(same(train_as_threads(one), reference)) << "the comparison sees nothing";
    }
}

}  // namespace
}  // namespace trireme::parity
