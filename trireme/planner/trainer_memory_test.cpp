#include "trireme/planner/trainer_memory.hpp"

#include <gtest/gtest.h>

namespace trireme::planner {
namespace {

StepWork dense() {
  StepWork w{.layers = 32,
             .hidden = 4096,
             .heads = 32,
             .kv_heads = 8,
             .head_dim = 128,
             .mlp_width = 14336,
             .vocab = 128256,
             .seq_len = 8192};
  split_evenly(w);
  return w;
}

/// Weights and gradients of 2 + 4 bytes, states of 12: performance figures of the ZeRO paper and of Megatron's tables.
TEST(TrainerMemory, BytesPerParameter) {
  const Software& megatron = software_named("megatron");
  StepWork work = dense();
  const double parameters = parameters_of_rank(work).first;
  EXPECT_NEAR(parameters / 8.03e9, 1, 0.01);
  work.zero = 0;
  EXPECT_NEAR(predict_trainer_memory(work, megatron).states / parameters, 18, 1e-9);
  work.zero = 1;
  work.dp = 4;
  work.cp = 2;
  EXPECT_NEAR(predict_trainer_memory(work, megatron).states / parameters, 6 + 12 / 8.0, 1e-9);
  work.zero = 3;
  EXPECT_LT(predict_trainer_memory(work, megatron).states / parameters, 18 / 8.0 + 0.2);
}

TEST(TrainerMemory, ActivationsOfPipelines) {
  const Software& megatron = software_named("megatron");
  StepWork work = dense();
  work.vocab = 8;
  work.pp = 4;
  work.microbatches = 16;
  split_evenly(work);
  const double plain = predict_trainer_memory(work, megatron).activations;
  work.schedule = "afab";
  EXPECT_NEAR(predict_trainer_memory(work, megatron).activations / plain, 4, 1e-9);
  work.schedule = "1f1b";
  work.recompute = config::Recompute::full;
  EXPECT_LT(predict_trainer_memory(work, megatron).activations, plain / 3);
}

}  // namespace
}  // namespace trireme::planner
