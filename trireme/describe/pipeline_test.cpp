#include "trireme/describe/pipeline.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/describe/parameters.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

ModelConfig layers_of(std::int64_t layers, std::int64_t vocab = 8) {
  ModelConfig m;
  m.hidden_size = 16;
  m.num_hidden_layers = layers;
  m.num_attention_heads = m.num_key_value_heads = 4;
  m.head_dim = 4;
  m.intermediate_size = 32;
  m.vocab_size = vocab;
  return m;
}

ParallelismConfig pipeline(std::int64_t pp, const std::string& schedule = "1f1b", std::int64_t virtual_stages = 1) {
  ParallelismConfig p;
  p.pp = pp;
  p.pp_schedule = schedule;
  p.virtual_stages = virtual_stages;
  return p;
}

TEST(PipelineChunks, AreContiguousAndBalanced) {
  using Chunks = std::vector<PipelineChunk>;
  EXPECT_EQ(pipeline_chunks(layers_of(4), pipeline(1)), (Chunks{{0, {0, 4}}}));
  EXPECT_EQ(pipeline_chunks(layers_of(4), pipeline(2)), (Chunks{{0, {0, 2}}, {1, {2, 4}}}));
  EXPECT_EQ(pipeline_chunks(layers_of(4), pipeline(2, "interleaved-1f1b", 2)),
            (Chunks{{0, {0, 1}}, {1, {1, 2}}, {0, {2, 3}}, {1, {3, 4}}}));
  EXPECT_EQ(pipeline_chunks(layers_of(4), pipeline(2, "zbv")),
            (Chunks{{0, {0, 1}}, {1, {1, 2}}, {1, {2, 3}}, {0, {3, 4}}}));
  // A layer has 4 · 16 · 16 + 3 · 16 · 32 = 2,560 weights, this head as many as two layers.
  EXPECT_EQ(pipeline_chunks(layers_of(4, 320), pipeline(2)), (Chunks{{0, {0, 3}}, {1, {3, 4}}}));
  ParallelismConfig given = pipeline(2);
  given.stages = {1, 3};
  EXPECT_EQ(pipeline_chunks(layers_of(4), given), (Chunks{{0, {0, 1}}, {1, {1, 4}}}));
  given.stages = {1, 2};
  EXPECT_THAT(message_of<ConfigError>([&] { pipeline_chunks(layers_of(4), given); }), testing::HasSubstr("3 layers"));
  EXPECT_THAT(message_of<ConfigError>([] { pipeline_chunks(layers_of(2), pipeline(4)); }),
              testing::HasSubstr("2 layers cannot fill 4 pipeline chunks"));
}

TEST(PipelineChunks, ParametersOutsideOfLayers) {
  const auto chunks = pipeline_chunks(layers_of(12), pipeline(3, "interleaved-1f1b", 2));
  EXPECT_EQ(stage_of_parameter(chunks, "embedding.weight"), 0);
  EXPECT_EQ(stage_of_parameter(chunks, "positions.weight"), 0);
  EXPECT_EQ(stage_of_parameter(chunks, "norm.weight"), 2);
  EXPECT_EQ(stage_of_parameter(chunks, "head.weight"), 2);
  for (std::int64_t layer = 0; layer < 12; ++layer)
    EXPECT_EQ(stage_of_parameter(chunks, text("layers.", layer, ".mlp.up.bias")), layer / 2 % 3) << layer;
  EXPECT_THROW(stage_of_parameter(chunks, "layers.12.mlp.up.bias"), InternalError);
  const auto v_shaped = pipeline_chunks(layers_of(12), pipeline(3, "zbv"));
  EXPECT_EQ(stage_of_parameter(v_shaped, "head.weight"), 0) << "the loss is on the embedding's rank";
}

TEST(ParameterPlacement, OfANameThatNoFamilyHas) {
  EXPECT_THROW(parameter_named(layers_of(2), "layers.0.experts.weight"), ConfigError);
}

}  // namespace
}  // namespace trireme
