#include "trireme/planner/memory.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/describe/counts.hpp"
#include "trireme/describe/local_parameters.hpp"
#include "trireme/testing/config_helpers.hpp"

namespace trireme::planner {
namespace {

Config config_of(const std::string& preset, const Flags& flags = {}) {
  return load_good("model.preset = \"" + preset + "\"\n", flags).config;
}

Config llama3(const Flags& more = {}) {
  return load_good(
             "model.preset = 'llama3-8b'\nmodel.dtype = 'bfloat16'\ntraining.seq_len = 8192\nparallelism.zero = 3\n",
             more)
      .config;
}

double states(const MemoryPlan& plan) { return plan.weights + plan.gradients + plan.master + plan.states; }

/// Bytes per parameter: a replicated part, and a part sharded over D = 8 ranks. For the row with two copies of the
/// gradients, only the first column is a layout of this library.
TEST(PredictMemory, HasTheBytesOfEveryRecipe) {
  struct Row {
    const char *param, *accumulate, *master, *states;
    std::int64_t zero;
    double whole, sharded;
    bool contiguous = true;
  };
  const char *f32 = "float32", *b16 = "bfloat16", *f16 = "float16";
  const Row rows[] = {
      {b16, f32, f32, f32, 0, 18, 0},        {b16, f32, f32, f32, 1, 6, 12}, {b16, f32, f32, f32, 2, 2, 16},
      {b16, f32, f32, f32, 3, 0, 18},        {f32, f32, f32, f32, 0, 16, 0}, {f32, f32, f32, f32, 1, 8, 8},
      {f32, f32, f32, f32, 3, 0, 16},        {b16, b16, f32, f32, 0, 16, 0}, {b16, b16, f32, f32, 1, 4, 12},
      {b16, b16, f32, f32, 2, 2, 14},        {b16, b16, f32, f32, 3, 0, 16}, {b16, b16, f32, b16, 0, 12, 0},
      {b16, b16, f32, b16, 1, 4, 8},         {b16, b16, f32, b16, 3, 0, 12}, {b16, b16, b16, b16, 0, 8, 0},
      {b16, b16, b16, b16, 1, 4, 4},         {b16, b16, b16, b16, 3, 0, 8},  {f16, f32, f32, f32, 0, 20, 0, false},
      {b16, f32, f32, f32, 0, 20, 0, false},
  };
  for (const Row& row : rows) {
    Config c = config_of("gpt2", {"--parallelism.dp", "8"});
    c.precision = {.param = row.param, .accumulate = row.accumulate, .master = row.master, .states = row.states};
    c.parallelism.zero = row.zero;
    c.parallelism.contiguous_gradients = row.contiguous;
    const double expected = 124'439'808 * (row.whole + row.sharded / 8);
    EXPECT_NEAR(states(predict_memory(c)), expected, expected / 1000)
        << row.param << " " << row.accumulate << " " << row.states << " zero " << row.zero;
  }
}

/// The numbers in the log of a published run.
TEST(PredictMemory, OfAPublishedRun) {
  Config c = llama3({"--parallelism.dp", "4", "--parallelism.cp", "2", "--precision.accumulate", "bfloat16"});
  c.parallelism.zero = 1;
  EXPECT_NEAR(states(predict_memory(c)) / 1e9, 44.17, 0.01);
}

TEST(PredictMemory, ShardsAreOfOneReplicaGroup) {
  const Config c = llama3({"--parallelism.dp", "8", "--parallelism.replicate", "2"});
  EXPECT_EQ(predict_memory(c).states, 8'030'261'248.0 * 8 / 4);
  EXPECT_EQ(predict_memory(llama3()).states, 8'030'261'248.0 * 8);  // an unset dp counts as 1
}

/// By hand: 918,656 parameters in float32, four sequences of 128 tokens.
TEST(PredictMemory, OfTinyLlama) {
  const MemoryPlan plan = predict_memory(
      config_of("tiny-llama", {"--training.seq_len", "128", "--training.micro_batch_size", "4"}), "float32");
  EXPECT_EQ(plan.weights, 4 * 918'656);
  EXPECT_EQ(plan.gradients, 4 * 918'656);
  EXPECT_EQ(plan.master, 0);
  EXPECT_EQ(plan.states, 8 * 918'656);
  const double layer = 512 * 4 * (12 / 2 * 128 + 2 * 128 + 3 * 384) + 512 * 4 * 4;
  // The backward of the last MLP needs more than the loss: the gradients of its output, input, gate and up.
  EXPECT_EQ(plan.activations, 4 * layer + 512 * 4 * 128);
  EXPECT_EQ(plan.logits, 0);
  EXPECT_EQ(plan.buffers, 512 * 4 * (2 * 128 + 2 * 384) + 8 * 918'656 / 1024);  // and the gradient norm
  EXPECT_EQ(plan.live_units, 0);
  EXPECT_EQ(describe(plan), "predicted 33 MiB/rank: weights 4 · gradients 4 · states 7 · activations 17 · buffers 2");
}

/// A batch with no more tokens than features stores the logits and no gradient of the head's weight.
TEST(PredictMemory, FewTokensKeepTheirLogits) {
  const auto logits = [](const char* tokens, const char* dtype) {
    return predict_memory(config_of("tiny-llama", {"--training.seq_len", tokens, "--training.micro_batch_size", "1",
                                                   "--model.vocab_size", "8192"}),
                          dtype)
        .logits;
  };
  EXPECT_EQ(logits("128", "float32"), 128 * 4 * 8192);
  EXPECT_EQ(logits("256", "float32"), 256 * 4 * 8192 + 4 * 8192 * 128);
  EXPECT_EQ(logits("128", "bfloat16"), 128 * 4 * 8192 + 4 * 8192 * 128);
}

TEST(PredictMemory, AutoIsWhatTheDeviceComputesIn) {
  const Config c = config_of("tiny-llama");
  EXPECT_EQ(predict_memory(c, "bfloat16").weights, 2 * 918'656);
  EXPECT_EQ(predict_memory(c, "bfloat16").master, 4 * 918'656);
  EXPECT_LT(predict_memory(c, "bfloat16").activations, predict_memory(c).activations);
  const Config proof = config_of("tiny-llama", {"--model.dtype", "float64"});
  EXPECT_EQ(states(predict_memory(proof, "bfloat16")), 32 * 918'656);
}

TEST(PredictMemory, OfOptimizers) {
  EXPECT_EQ(predict_memory(config_of("tiny-llama", {"--optimizer.name", "adam"})).states, 8 * 918'656);
  EXPECT_EQ(predict_memory(config_of("tiny-llama", {"--optimizer.name", "sgd"})).states, 4 * 918'656);
  EXPECT_EQ(predict_memory(config_of("tiny-llama", {"--optimizer.name", "sgd", "--optimizer.momentum", "0"})).states,
            0);
}

TEST(PredictMemory, OfWhatIsSaved) {
  const Flags two{"--parallelism.dp", "2", "--precision.param", "float32"};
  const auto saved = [&](Flags more) {
    more.insert(more.end(), two.begin(), two.end());
    return predict_saved_bytes(config_of("tiny-llama", more));
  };
  EXPECT_EQ(saved({}), 12 * 918'656 / 2);
  EXPECT_EQ(saved({"--optimizer.name", "sgd", "--optimizer.momentum", "0"}), 4 * 918'656 / 2);
  EXPECT_EQ(saved({"--optimizer.frozen", "[\"embedding.*\"]"}), (12 * 853'120 + 4 * 65'536) / 2);
  Config mixed = config_of("tiny-llama");
  mixed.precision.param = "bfloat16";
  EXPECT_EQ(predict_saved_bytes(mixed), 12 * 918'656) << "the master weights, not those of two bytes";
}

/// tiny-llama: an embedding of 65,536, tied, four layers of 213,248 and a norm of 128.
TEST(PredictMemory, OfFrozenParameters) {
  const MemoryPlan one = predict_memory(config_of("tiny-llama", {"--optimizer.frozen", "['embedding']"}));
  EXPECT_EQ(one.weights, 4 * 918'656);
  EXPECT_EQ(one.gradients, 4 * (918'656 - 65'536));
  EXPECT_EQ(one.states, 8 * (918'656 - 65'536));
  // The first of two stages is frozen but for the embedding; the second trains all it has, with a copy of that.
  const MemoryPlan second = predict_memory(
      config_of("tiny-llama", {"--parallelism.pp", "2", "--optimizer.frozen", "['layers.0.', 'layers.1.']"}));
  EXPECT_EQ(second.states, 8 * (2 * 213'248 + 128 + 65'536));
}

TEST(PredictMemory, OfRecompute) {
  const auto activations = [](const char* mode) {
    return predict_memory(llama3({"--activation_checkpoint.mode", mode})).activations;
  };
  const double T = 8192, h = 4096, kd = 1024, f = 14336, lse = 4 * 32, edges = T * 4 * h;
  EXPECT_EQ(activations("none"), 32 * T * (12 * h + 4 * kd + 6 * f + lse) + edges);
  // Outputs of norms and the product in the MLP are recomputed.
  EXPECT_EQ(activations("selective"), 32 * T * (8 * h + 4 * kd + 4 * f + lse) + edges);
  // While the backward recomputes a layer, that layer has all of its activations, and the loss with its logits is over.
  // The loss of a large vocabulary takes more than that.
  EXPECT_EQ(activations("full"), 32 * T * 2 * h + edges);
  const MemoryPlan full =
      predict_memory(llama3({"--activation_checkpoint.mode", "full", "--model.vocab_size", "1000"}));
  EXPECT_EQ(full.activations, 32 * T * 2 * h + T * (12 * h + 4 * kd + 6 * f + lse) + edges / 2);
  EXPECT_EQ(full.logits, 0);
}

/// GiB measured on one H200 by bench/gpu.py.
TEST(PredictMemory, IsWithin5PercentOfAGpu) {
  struct Row {
    const char* preset;
    double measured;
    Flags flags;
  };
  const Flags gpt2 = {"--training.seq_len=1024", "--training.micro_batch_size=32"};
  const Flags llama = {"--training.seq_len=4096", "--training.micro_batch_size=4", "--model.tie_word_embeddings=false"};
  const auto with = [](Flags flags, const Flags& more) {
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  };
  const Row rows[] = {
      {"gpt2", 11.9, gpt2},
      {"gpt2", 8.54, with(gpt2, {"--activation_checkpoint.mode=selective"})},
      {"gpt2", 3.82, with(gpt2, {"--activation_checkpoint.mode=full"})},
      {"gpt2-xl", 65.1, {"--training.seq_len=1024", "--training.micro_batch_size=16"}},
      {"llama3.2-1b", 45.92, llama},
      {"llama3.2-1b", 39.9, with(llama, {"--activation_checkpoint.mode=selective"})},
      {"llama3.2-1b", 44.43, with(llama, {"--precision.matmul=fp8"})},
      {"llama3.2-1b",  // of another family and other sizes
       20.9,
       {"--model.model_type=qwen3_moe", "--model.hidden_size=1024", "--model.num_hidden_layers=12",
        "--model.num_attention_heads=16", "--model.num_key_value_heads=4", "--model.head_dim=64",
        "--model.intermediate_size=512", "--model.moe_intermediate_size=512", "--model.num_local_experts=32",
        "--model.num_experts_per_tok=4", "--model.vocab_size=50304", "--model.tie_word_embeddings=false",
        "--training.seq_len=2048", "--training.micro_batch_size=8"}},
  };
  for (const Row& row : rows) {
    const MemoryPlan plan = predict_memory(config_of(row.preset, row.flags), "bfloat16", /*on_gpu=*/true);
    EXPECT_NEAR(plan.total() / (1 << 30), row.measured, 0.05 * row.measured)
        << row.preset << " " << testing::PrintToString(row.flags) << ": " << describe(plan);
  }
}

TEST(PredictMemory, OfGradientsOnTheirWay) {
  const double all = 124'439'808 + 47 * 768, embedding = 50304 * 768 + 1024 * 768;
  const auto buffers = [&](const Flags& flags) {
    return predict_memory(config_of("gpt2", flags)).buffers - 8 * all / 1024;  // without the gradient norm
  };
  for (const char* zero : {"0", "1"}) {
    EXPECT_EQ(buffers({"--parallelism.zero", zero}), 0);
    EXPECT_EQ(buffers({"--parallelism.zero", zero, "--precision.reduce", "bfloat16"}), 2 * 2 * embedding);
    EXPECT_EQ(
        buffers({"--parallelism.zero", zero, "--precision.reduce", "bfloat16", "--parallelism.bucket_mb", "1000"}),
        2 * all);
  }
  EXPECT_EQ(buffers({"--parallelism.zero", "2"}), 4 * embedding + 3 * 25e6);
  EXPECT_EQ(buffers({"--parallelism.zero", "2", "--parallelism.bucket_mb", "1000"}), 4 * all);
  // Tied: the embedding's, and those of three layers.
  const double layer = 12 * 768 * 768 + 13 * 768;
  EXPECT_EQ(buffers({"--parallelism.zero", "3"}), 4 * (embedding + 3 * layer));
  EXPECT_EQ(buffers({"--parallelism.zero", "3", "--precision.reduce", "bfloat16"}), 2 * (embedding + 3 * layer));
  EXPECT_EQ(buffers({"--parallelism.zero", "3", "--training.grad_accum", "4"}), 4 * (embedding + 3 * layer));
  EXPECT_EQ(buffers({"--parallelism.zero", "3", "--parallelism.zero_unit", "model"}), 4 * all);
}

/// An f64 per block of 1,024 elements: of the shard, or of all for the norm that is bitwise the same on every layout.
TEST(PredictMemory, OfTheGradientNorm) {
  const double all = 124'439'808 + 47 * 768;
  const auto buffers = [](const char* zero, const char* deterministic) {
    return predict_memory(config_of("gpt2", {"--parallelism.dp", "8", "--parallelism.zero", zero,
                                             "--comm.deterministic", deterministic}))
        .buffers;
  };
  EXPECT_EQ(buffers("0", "false"), 8 * all / 1024);
  EXPECT_EQ(buffers("1", "false"), all / 1024);
  EXPECT_EQ(buffers("1", "true"), 8 * all / 1024);
}

TEST(PredictMemory, OfGatheredUnits) {
  const auto live = [](const Flags& flags) { return predict_memory(llama3(flags)).live_units / 2; };  // in elements
  const double matrix = 128256.0 * 4096, layer = 2 * 4096.0 * (4096 + 1024) + 3 * 4096.0 * 14336, norms = 65 * 4096;
  EXPECT_EQ(live({}), matrix + layer + norms);
  EXPECT_EQ(live({"--parallelism.dp", "8"}), matrix + layer + norms);
  EXPECT_EQ(live({"--parallelism.persistence_threshold", "0"}),
            matrix + layer + 3 * 4096);  // the last layer and the head
  EXPECT_EQ(live({"--parallelism.max_live_parameters", "600_000_000"}), 6e8 + norms);
  EXPECT_EQ(live({"--parallelism.max_live_parameters", "0"}), matrix + norms);
  EXPECT_EQ(live({"--parallelism.zero_unit", "4", "--parallelism.max_live_parameters", "10_000_000_000"}),
            8 * layer + norms);
  EXPECT_EQ(live({"--parallelism.zero_unit", "model"}), 8'030'261'248.0);
  EXPECT_EQ(live({"--parallelism.reshard_after_forward", "false"}), 8'030'261'248.0);
  const Config tied = config_of("gpt2", {"--parallelism.zero", "3", "--parallelism.reshard_after_forward", "false"});
  EXPECT_EQ(predict_memory(tied).live_units, 4 * (124'439'808.0 + 47 * 768));
  // All matrices of a tiny model are below the threshold.
  const Config tiny = config_of("tiny-llama", {"--parallelism.zero", "3", "--parallelism.dp", "2"});
  EXPECT_EQ(predict_memory(tiny).live_units, 4 * 918'656);
}

TEST(PredictMemory, FallsWithRanksAndStages) {
  const auto total = [](std::int64_t tp, std::int64_t dp, std::int64_t zero) {
    return predict_memory(llama3({text("--parallelism.tp=", tp), text("--parallelism.dp=", dp),
                                  text("--parallelism.zero=", zero)}))
        .total();
  };
  for (std::int64_t zero = 0; zero <= 3; ++zero)
    for (const std::int64_t tp : {1, 2, 4, 8, 16}) {
      EXPECT_LT(total(2 * tp, 8, zero), total(tp, 8, zero)) << "tp " << tp << " zero " << zero;
      for (const std::int64_t dp : {1, 4, 64}) {
        const double narrow = total(tp, dp, zero), wide = total(tp, 2 * dp, zero);
        EXPECT_TRUE(zero == 0 ? wide == narrow : wide < narrow) << "tp " << tp << " dp " << dp << " zero " << zero;
      }
      if (zero > 0) {
        EXPECT_LT(total(tp, 8, zero), total(tp, 8, zero - 1)) << "tp " << tp << " zero " << zero;
      }
    }
}

/// The plan is that of the stage with the most: here the first, with more microbatches in flight.
TEST(PredictMemory, OfAPipeline) {
  const auto plan = [](const char* pp, const char* schedule, const char* accum) {
    return predict_memory(
        config_of("llama3.2-1b", {"--parallelism.pp", pp, "--parallelism.pp_schedule", schedule,
                                  "--training.grad_accum", accum, "--training.micro_batch_size", "1"}));
  };
  const MemoryPlan one = plan("1", "1f1b", "8"), two = plan("2", "1f1b", "8"), four = plan("4", "1f1b", "8");
  EXPECT_LT(two.total(), one.total());
  EXPECT_LT(four.total(), two.total());
  EXPECT_GT(two.weights, one.weights / 2) << "a copy of the tied embedding";
  EXPECT_LT(two.weights, one.weights);
  EXPECT_GT(plan("2", "afab", "8").activations, 3 * plan("2", "1f1b", "8").activations) << "8 in flight instead of 2";
  EXPECT_EQ(plan("2", "1f1b", "8").activations, plan("2", "1f1b", "64").activations);
}

TEST(PredictMemory, OfExperts) {
  const Config mixtral = config_of("mixtral-8x7b");
  const config::LocalParameters all = config::local_parameters(mixtral.model, 1);
  EXPECT_EQ(all.total(), config::count_parameters(mixtral.model).total());
  const auto with = [](const char* dp, const char* ep, const char* zero) {
    return predict_memory(config_of("mixtral-8x7b", {"--parallelism.dp", dp, "--parallelism.ep", ep,
                                                     "--parallelism.zero", zero, "--training.micro_batch_size", "1"}));
  };
  // The experts of a layer over ep; what is left is on all ranks.
  const std::int64_t experts = all.expert_total(), dense = all.total() - experts;
  EXPECT_EQ(config::local_parameters(mixtral.model, 1, 4).total(), dense + experts / 4);
  EXPECT_EQ(config::local_parameters(mixtral.model, 2, 4, 1).expert_total(), experts / 4);
  EXPECT_EQ(config::local_parameters(mixtral.model, 2, 4, 2).expert_total(), experts / 8);
  const double element = 4;
  EXPECT_EQ(with("8", "1", "0").weights, static_cast<double>(dense + experts) * element);
  EXPECT_EQ(with("8", "4", "0").weights, static_cast<double>(dense + experts / 4) * element);
  // ZeRO cuts each kind over the ranks that hold the same part.
  EXPECT_EQ(with("8", "4", "3").weights,
            (static_cast<double>(dense) / 8 + static_cast<double>(experts / 4) / 2) * element);
  EXPECT_EQ(with("8", "8", "3").weights, static_cast<double>(dense + experts) / 8 * element);
}

TEST(Describe, ChoosesAUnitAndLeavesOutWhatIsNothing) {
  constexpr double kMiB = 1024 * 1024;
  EXPECT_EQ(describe({.weights = 1 * kMiB,
                      .gradients = 2 * kMiB,
                      .master = 1 * kMiB,
                      .states = 2 * kMiB,
                      .activations = 33 * kMiB,
                      .logits = 2 * kMiB,
                      .buffers = 0.4 * kMiB}),
            "predicted 41 MiB/rank: weights 1 · gradients 2 · states 3 · activations 33 · logits 2");
  EXPECT_EQ(describe({.weights = 1024 * kMiB, .buffers = 500 * kMiB, .live_units = 76 * kMiB}),
            "predicted 1,600 MiB/rank: weights 1,024 · buffers 500 · gathered 76");
  EXPECT_EQ(describe({.states = 1024 * 64 * kMiB}), "predicted 64 GiB/rank: states 64");
  EXPECT_EQ(describe({.weights = 12}), "predicted 12 B/rank: weights 12");
  EXPECT_EQ(describe({}), "predicted 0 B/rank");
}

}  // namespace
}  // namespace trireme::planner
