#include "trireme/train/step/replica_check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/testing/config_helpers.hpp"
#include "trireme/testing/test_helpers.hpp"
#include "trireme/train/step/batches.hpp"
#include "trireme/train/step/training_model.hpp"
#include "trireme/verify/verify_reference.hpp"

namespace trireme {
namespace {

using testing::HasSubstr;

constexpr const char* kSmallModel = R"(
model.model_type = "llama"
model.hidden_size = 16
model.num_hidden_layers = 2
model.num_attention_heads = 4
model.num_key_value_heads = 2
model.intermediate_size = 24
model.vocab_size = 40
model.tie_word_embeddings = true
model.dtype = "float32"
training.seq_len = 8
training.global_batch_size = 8
training.micro_batch_size = 1
data = [ { sources = [ { path = "synthetic" } ] } ]
)";

/// What the ranks of a layout say after one of them has got a wrong bit in every tensor whose name ends with `name`.
std::string said(std::vector<std::string> settings, int ranks, int wrong_rank, const std::string& name,
                 const std::string& kind) {
  std::vector<std::string> flags;
  for (std::string& setting : settings) flags.push_back(std::move(setting));
  Config config = load_good(kSmallModel, flags, {.ranks = ranks, .how = "", .ranks_of_a_host = ranks}).config;
  config.precision.param = "float32";
  return message_of<ComparisonFailed>([&] {
    run_ranks(ranks, [&](World& world) {
      Mesh mesh = mesh_for(config, world);
      std::vector<std::string> warnings;
      TrainingModel model(config, mesh, at::kCPU, 4, false, warnings);
      model.zero().finish_gathers();
      std::vector<StateSlice> all = slices_to_load(model.zero());
      for (StateSlice& slice : kept_weight_slices(model.zero())) all.push_back(std::move(slice));
      for (const StateSlice& slice : all)
        if (world.rank() == wrong_rank && slice.name.ends_with(name) && slice.kind == kind) slice.values.add_(1e-3);
      ReplicaCheck check;
      check.add(all);
      check.compare(world, 7);
    });
  });
}

TEST(ReplicaCheck, FindsAWrongBitOnAnyLayout) {
  const auto replicas = said({}, 4, 2, "layers.1.mlp_norm.weight", "model");
  EXPECT_THAT(replicas, HasSubstr("step 7: replicas differ in 1 tensor: rank 2 differs from the majority"));
  EXPECT_THAT(replicas, HasSubstr("layers.1.mlp_norm.weight (model)"));
  EXPECT_THAT(said({"--parallelism.zero", "0"}, 4, 3, "attention.qkv.weight", "exp_avg"),
              HasSubstr("rank 3 differs from the majority"));
  EXPECT_THAT(said({"--parallelism.tp", "4"}, 4, 1, "layers.0.attention_norm.weight", "weight"),
              HasSubstr("rank 1 differs from the majority"))
      << "a norm is on all ranks of tp";
  EXPECT_THAT(said({"--parallelism.pp", "2"}, 4, 3, "embedding.weight", "model"),
              HasSubstr("rank 3 differs from the majority"))
      << "the copy of a tied weight";
  EXPECT_THAT(said({"--parallelism.zero", "3", "--parallelism.replicate", "4"}, 4, 0, "norm.weight", "weight"),
              HasSubstr("rank 0 differs from the majority"));
}

TEST(ReplicaCheck, RanksThatAgreeSayNothing) {
  for (const std::vector<std::string>& layout :
       {std::vector<std::string>{}, {"--parallelism.tp", "2"}, {"--parallelism.zero", "3"}, {"--parallelism.pp", "2"}})
    EXPECT_EQ(said(layout, 4, -1, "", ""), "no error");
}

}  // namespace
}  // namespace trireme
