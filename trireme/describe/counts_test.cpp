#include "trireme/describe/counts.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/config/schema/presets.hpp"
#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

/// A preset with derived sizes.
ModelConfig model_of(const std::string& preset, const std::string& toml = "") {
  return load_good("model.preset = \"" + preset + "\"\n" + toml).config.model;
}

TEST(CountParameters, AreThePublishedOnes) {
  const std::vector<std::pair<std::string, std::int64_t>> published = {
      {"tiny-llama", 918'656},        {"gpt2", 124'439'808},
      {"gpt2-medium", 354'823'168},   {"gpt2-large", 774'030'080},
      {"gpt2-xl", 1'557'611'200},     {"llama3-8b", 8'030'261'248},
      {"llama3-70b", 70'553'706'496}, {"llama3-405b", 405'853'388'800},
      {"llama3.2-1b", 1'235'814'400}, {"llama3.2-3b", 3'212'749'824},
      {"qwen3-0.6b", 596'049'920},    {"mixtral-8x7b", 46'702'792'704},
      {"gemma2-2b", 2'614'341'888},   {"gemma2-9b", 9'241'705'984},
  };
  for (const auto& [preset, count] : published) EXPECT_EQ(count_parameters(model_of(preset)).total(), count) << preset;
}

TEST(CountParameters, ByComponentAddUpAndHaveTheirForms) {
  const ModelConfig m = model_of("llama3-8b");
  const ParameterCounts n = count_parameters(m);
  EXPECT_EQ(n.embedding, 128'256LL * 4096);
  EXPECT_EQ(n.head, n.embedding);  // untied
  EXPECT_EQ(n.positions, 0);
  EXPECT_EQ(n.router, 0);
  EXPECT_EQ(n.attention, 32LL * (2 * 4096 * 4096 + 2 * 4096 * 1024));
  EXPECT_EQ(n.mlp, 32LL * 3 * 4096 * 14336);
  EXPECT_EQ(n.norms, 65LL * 4096);
  EXPECT_EQ(n.total(), n.embedding + n.head + n.attention + n.mlp + n.norms);
  const ParameterCounts gpt2 = count_parameters(model_of("gpt2"));
  EXPECT_EQ(gpt2.positions, 1024 * 768);
  EXPECT_EQ(gpt2.head, 0);  // tied
  EXPECT_EQ(gpt2.norms, 25 * 2 * 768);
}

TEST(CountParameters, BiasesByFamily) {
  const auto attention = [](const std::string& toml) {
    return count_parameters(model_of("llama3.2-1b", toml)).attention / 16;
  };
  const std::int64_t weights = 2 * 2048 * (2048 + 512), qkv = 2048 + 2 * 512;
  EXPECT_EQ(attention(""), weights);
  EXPECT_EQ(attention("model.attention_bias = true"), weights + qkv + 2048);
  EXPECT_EQ(attention("model.model_type = \"qwen2\""), weights + qkv);
  EXPECT_EQ(attention("model.model_type = \"gpt2\"\nmodel.hidden_act = \"gelu\"\ntraining.seq_len = 8"),
            weights + qkv + 2048);
  EXPECT_EQ(count_parameters(model_of("llama3.2-1b", "model.qk_norm = true")).norms, 33 * 2048 + 16 * 2 * 64);
}

TEST(CountParameters, OfExperts) {
  const ModelConfig m = model_of("mixtral-8x7b");
  EXPECT_EQ(count_parameters(m).router, 32 * 8 * 4096);
  EXPECT_EQ(active_parameters(m), 12'879'925'248);
  EXPECT_EQ(active_parameters(model_of("gpt2")), 124'439'808);
  EXPECT_EQ(count_parameters(model_of("mixtral-8x7b", "model.moe_intermediate_size = 7168")).mlp * 2,
            count_parameters(m).mlp);
}

TEST(IsCountable, RefusesWhatWouldOverflow) {
  for (const std::string& preset : preset_names()) EXPECT_TRUE(is_countable(model_of(preset))) << preset;
  ModelConfig m = model_of("llama3-405b");
  m.num_local_experts = 1'000'000;
  EXPECT_FALSE(is_countable(m));
  m = model_of("llama3-405b");
  m.vocab_size = m.hidden_size = 1'000'000'000;
  EXPECT_FALSE(is_countable(m));
}

TEST(ModelFlops, AreThoseOfPerformance21) {
  const ModelConfig m = model_of("llama3-8b");
  EXPECT_NEAR(model_flops_per_token(m, 8192, CountedScores::full) / 1e9, 57.9, 0.05);
  EXPECT_NEAR(model_flops_per_token(m, 8192, CountedScores::causal) / 1e9, 51.5, 0.05);
  const double attention = 12.0 * 32 * 4096 * 8192;
  EXPECT_EQ(model_flops_per_token(m, 8192, CountedScores::full) - model_flops_per_token(m, 8192, CountedScores::causal),
            attention / 2);
  // 6 per weight of a matmul; the embedding lookup and the norms count nothing.
  const ParameterCounts n = count_parameters(m);
  EXPECT_EQ(model_flops_per_token(m, 8192, CountedScores::full),
            6.0 * static_cast<double>(n.attention + n.mlp + n.head) + attention);
}

/// 72 B s L h^2 (1 + s/6h + V/12Lh) for model FLOPs, 96 B s L h^2 (1 + s/6h + V/16Lh) with full recompute.
TEST(ModelFlops, HaveTheClosedFormsOfGpt) {
  const ModelConfig m = model_of("gpt3-175b");
  const double s = 2048, L = 96, h = 12288, V = 50257;
  EXPECT_DOUBLE_EQ(model_flops_per_token(m, 2048, CountedScores::full),
                   72 * L * h * h * (1 + s / (6 * h) + V / (12 * L * h)));
  EXPECT_DOUBLE_EQ(model_flops_per_token(m, 2048, CountedScores::full) +
                       recompute_flops_per_token(m, 2048, CountedScores::full, Recompute::full),
                   96 * L * h * h * (1 + s / (6 * h) + V / (16 * L * h)));
  EXPECT_EQ(recompute_flops_per_token(m, 2048, CountedScores::full, Recompute::selective), 4 * L * h * s);
  EXPECT_EQ(recompute_flops_per_token(m, 2048, CountedScores::causal, Recompute::selective), 2 * L * h * s);
  EXPECT_EQ(recompute_flops_per_token(m, 2048, CountedScores::full, Recompute::none), 0);
}

TEST(ModelFlops, CountVisitedExpertsAndTheRouter) {
  const ModelConfig m = model_of("mixtral-8x7b");
  const double attention = 32.0 * (2 * 4096 * 4096 + 2 * 4096 * 1024), visited = 32.0 * 2 * 3 * 4096 * 14336,
               router = 32.0 * 8 * 4096, head = 32000.0 * 4096;
  EXPECT_EQ(model_flops_per_token(m, 4096, CountedScores::full),
            6 * (attention + visited + router + head) + 12.0 * 32 * 4096 * 4096);
}

/// Korthikanti et al. (arXiv 2205.05198): saves 70 % of the activation memory for 2.7 % more FLOPs.
TEST(SelectiveRecompute, HasTheNumbersPublishedForGpt3) {
  const ModelConfig m = model_of("gpt3-175b");
  const ActivationShape shape{.seq_len = 2048, .flash_attention = false};
  const double none = sum(layer_activation_bytes(m, shape, Recompute::none)),
               selective = sum(layer_activation_bytes(m, shape, Recompute::selective));
  EXPECT_NEAR(1 - selective / none, 0.70, 0.005);
  EXPECT_NEAR(published_selective_flops_per_token(m, 2048) / model_flops_per_token(m, 2048, CountedScores::full), 0.027,
              0.0005);
}

TEST(RecomputeOf, ReadsTheConfigsWords) {
  EXPECT_EQ(recompute_of("none"), Recompute::none);
  EXPECT_EQ(recompute_of("selective"), Recompute::selective);
  EXPECT_EQ(recompute_of("full"), Recompute::full);
}

/// Bytes per parameter, D = 8 ranks.
TEST(StateBytes, ByRecipe) {
  const PrecisionConfig fp32{.param = "float32"}, mixed{.param = "bfloat16"},
      bf16_grads{.param = "bfloat16", .accumulate = "bfloat16"},
      bf16_moments{.param = "bfloat16", .accumulate = "bfloat16", .states = "bfloat16"},
      all_bf16{.param = "bfloat16", .accumulate = "bfloat16", .master = "bfloat16", .states = "bfloat16"};
  struct Row {
    PrecisionConfig precision;
    std::int64_t zero;
    double fixed, sharded;
  };
  const Row rows[] = {
      {fp32, 0, 16, 0},        {fp32, 1, 8, 8},          {fp32, 3, 0, 16},       {mixed, 0, 18, 0},
      {mixed, 1, 6, 12},       {mixed, 2, 2, 16},        {mixed, 3, 0, 18},      {bf16_grads, 0, 16, 0},
      {bf16_grads, 1, 4, 12},  {bf16_grads, 2, 2, 14},   {bf16_grads, 3, 0, 16}, {bf16_moments, 0, 12, 0},
      {bf16_moments, 1, 4, 8}, {bf16_moments, 3, 0, 12}, {all_bf16, 0, 8, 0},    {all_bf16, 1, 4, 4},
      {all_bf16, 3, 0, 8},
  };
  for (const Row& row : rows)
    EXPECT_EQ(sum(state_bytes(1000, row.precision, "adamw", row.zero, 8)), 1000 * (row.fixed + row.sharded / 8))
        << row.precision.param << " " << row.precision.accumulate << " zero " << row.zero;
  EXPECT_EQ(sum(state_bytes(1000, mixed, "sgd", 0, 8)), 14'000);
  EXPECT_EQ(state_bytes(1000, mixed, "adamw", 0, 1)[2].bytes, 4000);
  EXPECT_EQ(state_bytes(1000, mixed, "adamw", 0, 1)[2].name, "master weights");
}

/// Gradients kept in the dtype of the weights, in addition to the accumulation buffer: 20 bytes per parameter.
TEST(StateBytes, OfGradientsThatStay) {
  const auto bytes = [](const PrecisionConfig& precision, std::int64_t zero, bool contiguous) {
    return sum(state_bytes(1000, precision, "adamw", zero, 8, contiguous));
  };
  for (const char* dtype : {"float16", "bfloat16"}) {
    EXPECT_EQ(bytes({.param = dtype}, 0, false), 20'000);
    EXPECT_EQ(bytes({.param = dtype}, 2, false), 1000 * (4 + 16.0 / 8));
    EXPECT_EQ(bytes({.param = dtype, .accumulate = dtype}, 0, false), 16'000);
  }
  EXPECT_EQ(bytes({.param = "float32"}, 0, false), 16'000);
}

/// Published memory of other runs.
TEST(StateBytes, OfPublishedRuns) {
  const PrecisionConfig bf16_grads{.param = "bfloat16", .accumulate = "bfloat16"};
  const std::int64_t zero_paper = 7'500'000'000;
  const std::vector<double> gigabytes = {120, 31.4, 16.6, 1.9};
  for (std::int64_t zero = 0; zero <= 3; ++zero)
    EXPECT_NEAR(sum(state_bytes(zero_paper, bf16_grads, "adamw", zero, 64)) / 1e9,
                gigabytes[static_cast<std::size_t>(zero)], 0.05);
  const std::int64_t llama = count_parameters(model_of("llama3-8b")).total();
  EXPECT_NEAR(sum(state_bytes(llama, bf16_grads, "adamw", 1, 8)) / 1e9, 44.17, 0.01);
}

TEST(DtypeBytes, OfTheFourDtypes) {
  EXPECT_EQ(dtype_bytes("float64"), 8);
  EXPECT_EQ(dtype_bytes("float32"), 4);
  EXPECT_EQ(dtype_bytes("bfloat16"), 2);
  EXPECT_EQ(dtype_bytes("float16"), 2);
  EXPECT_EQ(message_of<ConfigError>([] { dtype_bytes("auto"); }),
            "'auto' has no size: float64, float32, bfloat16 or float16");
}

/// Korthikanti et al.: sbh (34 + 5as/h), and over t ranks with and without sequence parallelism.
TEST(LayerActivations, OfTheOlderGpt) {
  const ModelConfig m = model_of("gpt3-175b");
  const double s = 2048, b = 2, h = 12288, a = 96, t = 8, sbh = s * b * h;
  const auto bytes = [&](std::int64_t tp, bool sequence_parallel, Recompute recompute) {
    return sum(layer_activation_bytes(m,
                                      {.seq_len = 2048,
                                       .micro_batch_size = 2,
                                       .tp = tp,
                                       .sequence_parallel = sequence_parallel,
                                       .flash_attention = false},
                                      recompute));
  };
  EXPECT_DOUBLE_EQ(bytes(1, false, Recompute::none), sbh * (34 + 5 * a * s / h));
  EXPECT_DOUBLE_EQ(bytes(8, false, Recompute::none), sbh * (10 + 24 / t + 5 * a * s / (h * t)));
  EXPECT_DOUBLE_EQ(bytes(8, true, Recompute::none), sbh * (34 / t + 5 * a * s / (h * t)));
  EXPECT_DOUBLE_EQ(bytes(8, true, Recompute::selective), sbh * 34 / t);
  EXPECT_DOUBLE_EQ(bytes(8, false, Recompute::full), 2 * sbh);
  EXPECT_DOUBLE_EQ(bytes(8, true, Recompute::full), 2 * sbh / t);
}

/// s b (12 h + 4 k d + 6 f) / (t c), and four bytes per head and token for the log-sum-exp.
TEST(LayerActivations, OfTheModernDecoder) {
  const ModelConfig m = model_of("llama3-8b");
  const double h = 4096, kd = 8 * 128, f = 14336, heads = 32;
  for (const std::int64_t tp : {1, 2, 8})
    for (const std::int64_t cp : {1, 4})
      for (const bool fused : {true, false}) {
        const ActivationShape shape{.seq_len = 8192, .micro_batch_size = 3, .tp = tp, .cp = cp, .fused_mlp = fused};
        const double tokens = 8192.0 * 3 / static_cast<double>(tp * cp);
        EXPECT_DOUBLE_EQ(sum(layer_activation_bytes(m, shape, Recompute::none)),
                         tokens * (12 * h + 4 * kd + (fused ? 6 : 8) * f + 4 * heads));
      }
  // Each of the eight key-value heads is held by two ranks.
  EXPECT_DOUBLE_EQ(sum(layer_activation_bytes(m, {.seq_len = 8192, .tp = 16}, Recompute::none)),
                   8192.0 / 16 * (12 * h + 4 * 2 * kd + 6 * f + 4 * heads));
  // A GELU MLP stores its input and output; flash attention stores no scores.
  const ModelConfig gpt2 = model_of("gpt2", "model.resid_pdrop = 0.0\nmodel.attention_dropout = 0.0");
  EXPECT_DOUBLE_EQ(sum(layer_activation_bytes(gpt2, {.seq_len = 1024}, Recompute::none)),
                   1024.0 * (12 * 768 + 4 * 768 + 4 * 4 * 768 + 4 * 12));
}

TEST(LayerActivations, GrowWithExpertsPerTokenAndElements) {
  const ModelConfig m = model_of("mixtral-8x7b");
  const ActivationShape bf16{.seq_len = 1024};
  const auto bytes = [](const std::vector<Bytes>& parts, const std::string& name) {
    for (const Bytes& part : parts)
      if (part.name == name) return part.bytes;
    return -1.0;
  };
  EXPECT_EQ(bytes(layer_activation_bytes(m, bf16, Recompute::none), "mlp hidden"), 1024.0 * 6 * 2 * 14336);
  ActivationShape fp32 = bf16;
  fp32.bytes_an_element = 4;
  EXPECT_EQ(bytes(layer_activation_bytes(m, fp32, Recompute::none), "norm inputs"), 1024.0 * 2 * 4 * 4096);
}

TEST(LogitsBytes, InTheComputeDtypeAndInFloat32) {
  const ModelConfig m = model_of("llama3-8b");
  EXPECT_EQ(logits_bytes(m, {.seq_len = 8192, .micro_batch_size = 2, .tp = 4, .cp = 2}),
            8192.0 * 2 / 2 * 128256 / 4 * 6);
}

}  // namespace
}  // namespace trireme::config
