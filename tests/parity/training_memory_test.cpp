// Bytes per parameter for weights, gradients, master weights and optimizer states, measured as live tensors.
#include <gtest/gtest.h>

#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/model/decoder.hpp"
#include "trireme/nn/init.hpp"
#include "trireme/nn/init_scope.hpp"
#include "trireme/parallel/zero/zero.hpp"
#include "trireme/runtime/memory/counted_memory.hpp"

namespace trireme::parity {
namespace {

ModelConfig small_llama(std::int64_t layers, std::int64_t intermediate_size) {
  ModelConfig m;
  m.model_type = "llama";
  m.hidden_size = 128;
  m.num_hidden_layers = layers;
  m.num_attention_heads = m.num_key_value_heads = 4;
  m.head_dim = 32;
  m.intermediate_size = intermediate_size;
  m.vocab_size = 512;
  return m;
}

struct Recipe {
  at::ScalarType param, accumulate;
  bool contiguous = true;
};

/// Bytes per parameter on each of `dp` ranks after a backward, while stage 3 has nothing gathered: the ranks are
/// threads, so the total is divided by their number.
double bytes_a_parameter(const Recipe& recipe, int stage, int dp) {
  ModelConfig m = small_llama(12, 384);
  m.tie_word_embeddings = true;
  const CountedMemory memory;
  std::int64_t alive = 0, parameters = 0;
  run_ranks(dp, [&](World& world) {
    Mesh mesh(Grid::dense({.dp = dp}), world);
    std::shared_ptr<Decoder> decoder;
    {
      const InitScope scope(at::kCPU, recipe.param);
      decoder = std::make_shared<Decoder>(m, Parallel{mesh, false});
    }
    const UnitPlan units = decoder->unit_plan();
    Zero zero(params_of(*decoder), units, mesh,
              {.stage = stage,
               .bucket_mb = 1,
               .contiguous_gradients = recipe.contiguous,
               .max_reuse_distance = 0,
               .persistence_threshold = 0,
               .accumulate = recipe.accumulate,
               .reduce = recipe.accumulate},
              {}, [](const Param&, Range, const at::Tensor& out) { out.fill_(0.01); });
    decoder->use_units(&zero.chunk(), units);
    const at::Tensor ids = at::arange(8);
    const auto look = [&] {
      EXPECT_EQ(zero.params().live(), 0);
      mesh.world_group().barrier().wait();
      if (mesh.rank() == 0) {
        for (const MemoryKind kind :
             {MemoryKind::weights, MemoryKind::gradients, MemoryKind::master, MemoryKind::states})
          alive += memory.alive(kind);
        if (!recipe.contiguous) alive += memory.alive(MemoryKind::other);  // gradients of autograd
        parameters = zero.partition().num_elements();
      }
      mesh.world_group().barrier().wait();
    };
    const auto step = [&](bool measure) {
      zero.chunk().begin_microbatch(true);
      {
        // After this scope nothing of the graph is alive except the gradients.
        decoder->loss(ids, ids, whole_samples(1, 8)).loss.backward();
      }
      // Gradients that stay where autograd put them live until the end of the microbatch; the others are measured after
      // the reduction.
      if (measure && !recipe.contiguous) look();
      zero.chunk().end_microbatch();
      zero.finish_gradients();
      if (measure && recipe.contiguous) look();
      zero.update({.lr = 1e-3}).settle();
      zero.finish_gathers();
    };
    step(false);
    step(true);
    // One unit in use and one being prefetched, and with a tied head that of the embedding.
    std::int64_t largest = 0;
    for (const FlatBucket& bucket : zero.partition().layout().buckets) largest = std::max(largest, bucket.numel);
    EXPECT_LE(zero.params().most_live(), 3 * largest);
    EXPECT_EQ(zero.params().most_live() > 0, stage == 3);
  });
  return static_cast<double>(alive) / dp / static_cast<double>(parameters);
}

TEST(TrainingMemory, BytesAParameter) {
  const Recipe fp32{at::kFloat, at::kFloat}, mixed{at::kBFloat16, at::kFloat}, bf16{at::kBFloat16, at::kBFloat16},
      twice{at::kBFloat16, at::kFloat, false};
  const auto expect = [](const Recipe& recipe, int stage, int dp, double bytes, const char* what) {
    const double found = bytes_a_parameter(recipe, stage, dp), wanted = bytes;
    EXPECT_NEAR(found / wanted, 1, 0.03) << what << ": " << found << " bytes, " << wanted << " expected";
    std::printf("  %-40s dp %d: %.3f bytes a parameter, %.3f by the formula\n", what, dp, found, wanted);
  };
  expect(fp32, 0, 1, 16, "float32");
  expect(bf16, 0, 1, 16, "bfloat16 gradients");
  expect(mixed, 0, 1, 18, "bfloat16, float32 master and gradients");
  expect(twice, 0, 1, 20, "bfloat16 gradients and float32 sums");
  for (const int dp : {2, 4}) {
    expect(mixed, 1, dp, 6 + 12.0 / dp, "ZeRO 1: 6 + 12/D");
    expect(mixed, 2, dp, 2 + 16.0 / dp, "ZeRO 2: 2 + 16/D");
    expect(mixed, 3, dp, 18.0 / dp, "ZeRO 3: 18/D");
  }
}

struct StartMemory {
  double bytes = 0;           // per parameter: the highest sum of all tensors of a rank until the first step
  double largest_bucket = 0;  // as a share of the parameters
  double largest_tensor = 0;
};

StartMemory memory_until_the_first_step(int dp) {
  const ModelConfig m = small_llama(24, 512);
  const CountedMemory memory;
  std::int64_t peak = 0, parameters = 0, bucket = 0, tensor = 0;
  run_ranks(dp, [&](World& world) {
    Mesh mesh(Grid::dense({.dp = dp}), world);
    std::shared_ptr<Decoder> decoder;
    {
      const InitScope scope(at::kMeta, at::kBFloat16);
      decoder = std::make_shared<Decoder>(m, Parallel{mesh, false});
    }
    Zero zero(params_of(*decoder), decoder->unit_plan(), mesh,
              {.device = at::Device(at::kCPU), .stage = 3, .persistence_threshold = 0}, {},
              random_values(mesh, {.seed = 1}));
    mesh.world_group().barrier().wait();
    if (mesh.rank() == 0) {
      peak = memory.peak();
      parameters = zero.partition().num_elements();
      for (const FlatBucket& b : zero.partition().layout().buckets) bucket = std::max(bucket, b.numel);
      for (const Param& param : zero.partition().params()) tensor = std::max(tensor, param.value.numel());
    }
    mesh.world_group().barrier().wait();
  });
  const auto all = static_cast<double>(parameters);
  return {static_cast<double>(peak) / dp / all, static_cast<double>(bucket) / all, static_cast<double>(tensor) / all};
}

TEST(TrainingMemory, NoRankHoldsTheModelAtTheStart) {
  for (const int dp : {2, 16}) {  // 16: the model in bf16 is larger than all that a rank keeps
    const StartMemory memory = memory_until_the_first_step(dp);
    // 18 bytes per parameter of the shards, one unit in bf16, and three copies in f64 of one tensor's values: as drawn,
    // as a block, and as converted.
    const double bound = 1.02 * (18.0 / dp + 2 * memory.largest_bucket + 24 * memory.largest_tensor);
    EXPECT_LT(memory.bytes, bound) << dp;
    EXPECT_GT(memory.bytes, 18.0 / dp);
    std::printf("  ZeRO 3 from the start to the first step, dp %d: %.2f bytes per parameter, bound %.2f\n", dp,
                memory.bytes, bound);
  }
}

/// Two KV heads over four ranks: the groups of their replicas are connected before the first step, not in a backward.
TEST(Training, NoGroupIsMadeInAStep) {
  ModelConfig m;
  m.model_type = "llama";
  m.hidden_size = 32;
  m.num_hidden_layers = 2;
  m.num_attention_heads = 4;
  m.num_key_value_heads = 2;
  m.head_dim = 8;
  m.intermediate_size = 64;
  m.vocab_size = 64;
  run_ranks(4, [&](World& world) {
    Mesh mesh(Grid::dense({.tp = 4}), world);
    const InitScope scope(at::kCPU, at::kFloat);
    Decoder decoder(m, Parallel{mesh, true});
    const UnitPlan units = decoder.unit_plan();
    Zero zero(params_of(decoder), units, mesh, {.stage = 1}, {}, random_values(mesh, {.seed = 1}));
    decoder.use_units(&zero.chunk(), units);
    mesh.end_step();
    const at::Tensor ids = at::arange(8);
    zero.chunk().begin_microbatch(true);
    decoder.loss(ids, ids, whole_samples(1, 8)).loss.backward();
    zero.chunk().end_microbatch();
    zero.finish_gradients();
    int pairs = 0;
    for (const CallRecord& call : world.recorder().step_calls()) {
      EXPECT_NE(call.op, Op::barrier) << "a new group's first call: " << call.str();
      pairs += std::string_view(call.group).starts_with("custom{");
    }
    EXPECT_GT(pairs, 0) << "the replicas of KV heads are summed";
    zero.update({.lr = 1e-3}).settle();
    zero.finish_gathers();
  });
}

}  // namespace
}  // namespace trireme::parity
