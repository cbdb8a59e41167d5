// Parity of context parallelism, combined with the other axes, with one rank: losses, all gradients, norms, all
// parameters and optimizer states after five steps.
#include <cstdlib>

#include <gtest/gtest.h>

#include "tests/parity/compare_cells.hpp"
#include "tests/parity/covering.hpp"

namespace trireme::parity {
namespace {

/// Indices of a choice.
struct With {
  enum : std::size_t { ranks, method, heads, samples, tensor, pipeline, data, stage, recompute, all };
};
using ContextChoice = std::array<int, With::all>;
constexpr ContextChoice kContextValues{2, 5, 3, 3, 3, 3, 2, 3, 3};
constexpr int kMaxContextRanks = 8;

TrainingCell context_cell(const ContextChoice& c) {
  TrainingCell cell;
  ModelConfig& m = cell.base.model;
  const int kv = std::array{8, 4, 1}[static_cast<std::size_t>(c[With::heads])];
  const bool tied = c[With::heads] == 0;
  m.model_type = tied ? "gpt2" : "llama";
  m.hidden_size = 16;
  m.num_hidden_layers = 4;
  m.num_attention_heads = 8;
  m.num_key_value_heads = kv;
  m.head_dim = tied ? 2 : 4;
  m.intermediate_size = 22;
  m.vocab_size = 37;
  m.max_position_embeddings = 32;
  m.hidden_act = tied ? "gelu_new" : "silu";
  m.tie_word_embeddings = tied;
  m.sliding_window = c[With::samples] == 2 ? 5 : 0;
  cell.base.batch = 4;
  cell.base.length = 16;  // divisible by 2 cp and by cp x tp
  cell.documents = c[With::samples] == 1;
  cell.base.degrees.cp = 2 << c[With::ranks];
  cell.context_method = static_cast<ContextMethod>(c[With::method]);
  cell.base.degrees.tp = c[With::tensor] == 0 ? 1 : 2;
  cell.base.sequence_parallel = c[With::tensor] == 2;
  cell.base.degrees.pp = c[With::pipeline] == 0 ? 1 : 2;
  cell.schedule = c[With::pipeline] == 2 ? "zbv" : "1f1b";
  cell.accumulation = 2;
  cell.base.degrees.dp = 1 << c[With::data];
  cell.base.recompute = static_cast<config::Recompute>(c[With::recompute]);
  cell.zero.stage = std::array{0, 1, 3}[static_cast<std::size_t>(c[With::stage])];
  cell.zero.bucket_mb = 0.004;
  cell.zero.persistence_threshold = 0;
  cell.max_norm = 0.4;
  cell.optimizer = c[With::stage] == 1 ? "sgd" : "adamw";
  return cell;
}

bool context_is_legal(const ContextChoice& c) {
  const TrainingCell cell = context_cell(c);
  const Degrees& d = cell.base.degrees;
  const bool heads_divide = cell.context_method != ContextMethod::ulysses || 8 % (d.tp * d.cp) == 0;
  return d.pp * d.dp * d.cp * d.tp <= kMaxContextRanks && heads_divide;
}

/// In a campaign all cells, else a set that covers all pairs of values.
std::vector<ContextChoice> context_cells(bool all) {
  std::vector<ContextChoice> choices;
  for (const ContextChoice& choice : all_combinations(kContextValues))
    if (context_is_legal(choice)) choices.push_back(choice);
  if (all) return choices;
  std::vector<ContextChoice> some;  // the search is quadratic
  for (std::size_t i = 0; i < choices.size(); i += 7) some.push_back(choices[i]);
  return covering(some, 2);
}

TEST(ContextParity, EveryCellEqualsOneRank) {
  std::vector<TrainingCell> chosen;
  for (const auto& choice : context_cells(std::getenv("TRIREME_CAMPAIGN") != nullptr))
    chosen.push_back(context_cell(choice));
  EXPECT_GE(chosen.size(), 15u);
  expect_equals_one_rank(chosen);
}

}  // namespace
}  // namespace trireme::parity
