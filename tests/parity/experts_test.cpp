// Parity of expert parallelism, combined with the other axes, with one rank: losses, all gradients, norms, all
// parameters and optimizer states after five steps, with auxiliary losses. Most experts have no token in a microbatch.
#include <cstdlib>

#include <gtest/gtest.h>

#include "tests/parity/compare_cells.hpp"
#include "tests/parity/covering.hpp"

namespace trireme::parity {
namespace {

/// Indices of a choice.
struct Of {
  enum : std::size_t { experts, capacity, tensor, expert_tensor, pipeline, context, stage, recompute, all };
};
using ExpertChoice = std::array<int, Of::all>;
constexpr ExpertChoice kExpertValues{2, 2, 3, 2, 3, 2, 4, 2};
constexpr int kMaxExpertRanks = 8;

TrainingCell expert_cell(const ExpertChoice& c) {
  TrainingCell cell;
  ModelConfig& m = cell.base.model;
  m.model_type = "llama";
  m.hidden_size = 12;
  m.num_hidden_layers = 4;
  m.num_attention_heads = 4;
  m.num_key_value_heads = 2;
  m.head_dim = 4;
  m.intermediate_size = m.moe_intermediate_size = 8;
  m.vocab_size = 37;
  m.num_local_experts = 8;
  m.num_experts_per_tok = 2;
  m.expert_capacity_factor = c[Of::capacity] == 1 ? 1.25 : 0;
  m.router_aux_loss_coef = 0.2;
  m.router_z_loss_coef = 0.05;
  cell.base.batch = 8;
  cell.base.length = 8;
  cell.ep = 2 << c[Of::experts];
  cell.base.degrees.tp = c[Of::tensor] == 0 ? 1 : 2;
  cell.base.sequence_parallel = c[Of::tensor] == 2;
  cell.expert_tp = c[Of::expert_tensor] == 0 ? cell.base.degrees.tp : 1;
  cell.base.degrees.pp = c[Of::pipeline] == 0 ? 1 : 2;
  cell.schedule = c[Of::pipeline] == 2 ? "zbv" : "1f1b";
  cell.base.degrees.cp = 1 << c[Of::context];
  // ep takes its ranks from dp, cp and, if an expert is not split over it, tp.
  const int others = cell.base.degrees.cp * (cell.base.degrees.tp / cell.expert_tp);
  cell.base.degrees.dp = std::max(1, cell.ep / others);
  cell.accumulation = 2;
  cell.base.recompute = c[Of::recompute] == 0 ? config::Recompute::none : config::Recompute::full;
  cell.zero.stage = c[Of::stage];
  cell.zero.bucket_mb = 0.004;
  cell.zero.persistence_threshold = 0;
  cell.max_norm = 0.4;
  cell.optimizer = c[Of::stage] % 2 == 0 ? "sgd" : "adamw";
  return cell;
}

bool expert_cell_is_legal(const ExpertChoice& c) {
  const Degrees d = expert_cell(c).base.degrees;
  return d.pp * d.dp * d.cp * d.tp <= kMaxExpertRanks;
}

/// In a campaign all cells, else a set that covers all pairs of values.
std::vector<ExpertChoice> expert_cells(bool all) {
  std::vector<ExpertChoice> choices;
  for (const ExpertChoice& choice : all_combinations(kExpertValues))
    if (expert_cell_is_legal(choice)) choices.push_back(choice);
  return all ? choices : covering(choices, 2);
}

TEST(ExpertParity, EveryCellEqualsOneRank) {
  std::vector<TrainingCell> chosen;
  for (const auto& choice : expert_cells(std::getenv("TRIREME_CAMPAIGN") != nullptr))
    chosen.push_back(expert_cell(choice));
  EXPECT_GE(chosen.size(), 15u);
  expect_equals_one_rank(chosen);
}

}  // namespace
}  // namespace trireme::parity
