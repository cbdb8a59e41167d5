// A checkpoint of any layout loads on any other: the same bits, and training goes on as on one rank.
#include <cmath>
#include <cstdlib>
#include <map>

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "tests/parity/training.hpp"
#include "trireme/base/error.hpp"
#include "trireme/testing/temp_folder.hpp"

namespace trireme::parity {
namespace {

struct SavedOn {
  int dp, tp, stage, replicate = 1;
  bool sequence_parallel = false;
  std::int64_t layers_per_unit = 1;
  int pp = 1;
  const char* schedule = "1f1b";
};
const std::vector<SavedOn> kLayouts{
    {1, 1, 0},
    {2, 1, 0},
    {1, 2, 0},
    {4, 1, 1},
    {2, 2, 1, 1, true},
    {1, 4, 1},
    {4, 1, 2, 2},
    {2, 2, 2},
    {4, 1, 3},
    {2, 2, 3, 1, true, 2},
    {4, 1, 3, 2, false, 0},
    {3, 1, 3},
    {.dp = 1, .tp = 1, .stage = 1, .pp = 2},
    {.dp = 2, .tp = 1, .stage = 3, .pp = 2, .schedule = "interleaved-1f1b"},
    {.dp = 1, .tp = 2, .stage = 2, .sequence_parallel = true, .pp = 2, .schedule = "zbv"},
    {.dp = 1, .tp = 1, .stage = 0, .pp = 4, .schedule = "zb1p"}};

TrainingCell checkpoint_cell(const SavedOn& layout, bool gpt2) {
  TrainingCell cell;
  ModelConfig& m = cell.base.model;
  m.model_type = gpt2 ? "gpt2" : "llama";
  m.hidden_size = 20;
  m.num_hidden_layers = 4;
  m.num_attention_heads = 4;
  m.num_key_value_heads = gpt2 ? 4 : 1;  // fewer than tp: shared by several ranks
  m.head_dim = gpt2 ? 5 : 6;
  m.intermediate_size = 48;
  m.vocab_size = 257;
  m.max_position_embeddings = 16;
  m.hidden_act = gpt2 ? "gelu_new" : "silu";
  m.tie_word_embeddings = gpt2;
  cell.base.batch = 12;
  cell.base.length = 8;
  cell.base.degrees.dp = layout.dp;
  cell.base.degrees.tp = layout.tp;
  cell.base.degrees.pp = layout.pp;
  cell.schedule = layout.schedule;
  cell.virtual_stages = cell.schedule == "interleaved-1f1b" ? 2 : 1;
  if (layout.pp > 1) cell.accumulation = 3;
  cell.base.sequence_parallel = layout.sequence_parallel;
  cell.layers_per_unit = layout.layers_per_unit;
  cell.zero.stage = layout.stage;
  cell.zero.replicate = layout.replicate;
  cell.zero.bucket_mb = 0.02;
  cell.zero.persistence_threshold = 100;
  cell.max_norm = 0.4;
  return cell;
}

/// The number of tensors that differ in a bit.
int differing(const Named& a, const Named& b) {
  EXPECT_EQ(a.size(), b.size());
  int count = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    EXPECT_EQ(a[i].first, b[i].first);
    if (!at::equal(a[i].second, b[i].second)) ++count;
  }
  return count;
}

/// One step of `cell` after `first` steps, from the checkpoint of the step before.
Outcome continue_on(TrainingCell cell, int first, const std::filesystem::path& from, const std::filesystem::path& to) {
  cell.first_step = first;
  cell.steps = first + 1;
  cell.load_from = from;
  cell.save_to = to;
  return train_as_threads(cell);
}

/// What a layout has in memory after loading.
Named loaded_on(TrainingCell cell, const std::filesystem::path& from) {
  cell.first_step = cell.steps = 0;
  cell.load_from = from;
  return train_as_threads(cell).parameters;
}

void expect_loss(double loss, double expected, const std::string& where) {
  EXPECT_LE(std::abs(loss - expected), 1e-12 * std::abs(expected)) << where;
}

/// A run that changes its layout after every step, through all of them, has the losses of one rank without checkpoints.
TEST(CheckpointLayouts, ARunMayChangeItsLayoutAtEveryStep) {
  for (const bool gpt2 : {false, true}) {
    TrainingCell reference = checkpoint_cell({1, 1, 0}, gpt2);
    reference.steps = static_cast<int>(kLayouts.size());
    const Outcome plain = train_plainly(reference);
    const TempFolder folder;
    std::filesystem::path from;
    Named before;
    for (int step = 0; step < reference.steps; ++step) {
      const TrainingCell cell = checkpoint_cell(kLayouts[static_cast<std::size_t>(step)], gpt2);
      SCOPED_TRACE(cell.str());
      if (!from.empty()) {
        EXPECT_EQ(differing(loaded_on(cell, from), before), 0) << "other bits after loading";
      }
      const Outcome outcome = continue_on(cell, step, from, folder.path());
      // Losses of plain steps: loss 0, loss 1, norm 1, loss 2, norm 2, ...
      expect_loss(outcome.losses.at(0), plain.losses.at(static_cast<std::size_t>(step == 0 ? 0 : 2 * step - 1)),
                  text("step ", step));
      before = outcome.parameters;
      from = folder.path() / text("step-", step + 1);
    }
  }
}

/// All ordered pairs: the same bits, the same next loss, and back again the identity. In a campaign; else a few.
TEST(CheckpointLayouts, EveryPair) {
  const bool all = std::getenv("TRIREME_CAMPAIGN") != nullptr;
  int pairs = 0;
  for (const bool gpt2 : {false, true})
    for (std::size_t a = 0; a < kLayouts.size(); ++a) {
      if (!all && a != 4) continue;
      const TempFolder folder;
      const TrainingCell on_a = checkpoint_cell(kLayouts[a], gpt2);
      const Outcome saved = continue_on(on_a, 0, {}, folder.path());
      const std::filesystem::path from = folder.path() / "step-1";
      const double next = continue_on(on_a, 1, from, {}).losses.at(0);
      for (std::size_t b = 0; b < kLayouts.size(); ++b) {
        if (!all && b % 5 != 0) continue;
        const TrainingCell on_b = checkpoint_cell(kLayouts[b], gpt2);
        SCOPED_TRACE(text(on_a.str(), " -> ", on_b.str()));
        EXPECT_EQ(differing(loaded_on(on_b, from), saved.parameters), 0);
        expect_loss(continue_on(on_b, 1, from, {}).losses.at(0), next, "next step");
        const TempFolder other;
        TrainingCell copy = on_b;
        copy.first_step = copy.steps = 0;
        copy.load_from = from;
        copy.save_to = other.path();
        train_as_threads(copy);
        EXPECT_EQ(differing(loaded_on(on_a, other.path() / "step-1"), saved.parameters), 0) << "there and back";
        ++pairs;
      }
    }
  RecordProperty("pairs", pairs);
}

}  // namespace
}  // namespace trireme::parity
