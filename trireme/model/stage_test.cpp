#include "trireme/model/stage.hpp"

#include <set>

#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/describe/parameters.hpp"
#include "trireme/nn/init_scope.hpp"
#include "trireme/testing/model_helpers.hpp"

namespace trireme {
namespace {

/// A rank allocates the parameters of its own chunks, under the names of the whole model, and nothing else.
TEST(DecoderParts, HoldOnlyTheirOwnParameters) {
  for (const bool tied : {false, true})
    for (const char* schedule : {"1f1b", "interleaved-1f1b", "zbv"})
      for (const int pp : {2, 4}) {
        SCOPED_TRACE(text(schedule, " pp ", pp, tied ? " tied" : ""));
        ModelConfig model = small_model("llama");
        model.num_hidden_layers = 8;
        model.tie_word_embeddings = tied;
        ParallelismConfig parallelism;
        parallelism.pp = pp;
        parallelism.pp_schedule = schedule;
        parallelism.virtual_stages = schedule == std::string("interleaved-1f1b") ? 2 : 1;
        const std::vector<PipelineChunk> chunks = pipeline_chunks(model, parallelism);
        const int last_stage = chunks.back().stage;
        std::vector<std::multiset<std::string>> names(static_cast<std::size_t>(pp));
        std::vector<std::int64_t> bytes(names.size());
        run_ranks(pp, [&](World& world) {
          Mesh mesh(Grid::dense({.pp = pp}), world);
          const InitScope scope(at::kCPU, at::kFloat);
          const auto rank = static_cast<std::size_t>(mesh.rank());
          for (const DecoderPart& part : decoder_parts(model, chunks, mesh))
            for (const Param& param : params_of(Decoder(model, {mesh, false}, part))) {
              bytes[rank] += static_cast<std::int64_t>(param.value.storage().nbytes());
              names[rank].insert(param.name);
              EXPECT_EQ(param.spec.is_tied_copy, tied && param.name == "embedding.weight" && !part.has_embedding);
              EXPECT_EQ(param.spec.tie.has_value(), tied && param.name == "embedding.weight");
            }
        });
        std::vector<std::multiset<std::string>> expected(names.size());
        std::vector<std::int64_t> expected_bytes(names.size());
        const auto expect = [&](int stage, const std::string& name, const Shape& shape) {
          expected[static_cast<std::size_t>(stage)].insert(name);
          const Placement placement = parameter_named(model, name).spec.placement;
          expected_bytes[static_cast<std::size_t>(stage)] += 4 * numel(local_shape(placement, shape, Grid::dense({})));
        };
        for (const Parameter& parameter : all_parameters(model)) {
          const auto& [name, shape] = std::tie(parameter.name, parameter.spec.shape);
          expect(stage_of_parameter(chunks, name), name, shape);
          if (tied && name == "embedding.weight") expect(last_stage, name, shape);  // the head's copy
        }
        EXPECT_EQ(names, expected);
        EXPECT_EQ(bytes, expected_bytes);
      }
}

}  // namespace
}  // namespace trireme
