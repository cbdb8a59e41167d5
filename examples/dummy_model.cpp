// A model of three blocks on the ranks of a pipeline: each rank has the parameters of its own blocks only. The losses
// do not depend on the number of ranks, or on which rank has which block.
//   trireme launch -n 3 -- ./dummy_model
#include <algorithm>
#include <iostream>

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include "trireme/parallel/pipeline/pipeline_engine.hpp"
#include "trireme/runtime/rank/parallel_context.hpp"
#include "trireme/runtime/rank/rank_main.hpp"

using trireme::PipelineBlock;
using trireme::PipelineP2P;
using trireme::TensorOrPointer;

PipelineBlock dense(PipelineP2P& p2p, const char* name, std::uint64_t seed) {
  return PipelineBlock({.p2p = p2p,
                        .name = name,
                        .module_builder =
                            [seed] {
                              at::manual_seed(seed);  // the same initial weights on any rank
                              return torch::nn::Linear(10, 10);
                            },
                        .module_input_keys = {"input"},
                        .module_output_keys = {"output"}});
}

struct DummyModel : torch::nn::Module {
  explicit DummyModel(PipelineP2P& p2p)
      : dense1(register_module("dense1", dense(p2p, "dense1", 1))),
        dense2(register_module("dense2", dense(p2p, "dense2", 2))),
        // It has no parameters, but it has to be computed somewhere.
        loss(register_module(
            "loss", PipelineBlock({.p2p = p2p,
                                   .name = "loss",
                                   .module_builder = [] { return [](const at::Tensor& x) { return x.sum(); }; },
                                   .module_input_keys = {"x"},
                                   .module_output_keys = {"output"}}))) {}

  TensorOrPointer forward(TensorOrPointer x) {
    x = dense1({{"input", x}})["output"];
    x = dense2({{"input", x}})["output"];
    x = loss({{"x", x}})["output"];
    return x;
  }

  PipelineBlock dense1, dense2, loss;
};

int main(int argc, char** argv) {
  using namespace trireme;
  const RankMain how{.words = {argv, argv + argc}, .variables = process_variables()};
  return rank_main(how, [&](const Environment& env) {
    const ParallelContext context({.pipeline_parallel_size = env.world_size}, env, how.variables);
    PipelineP2P p2p(context.mesh(), context.device());

    DummyModel model(p2p);
    model.dense1.build_and_set_rank(0);
    model.dense2.build_and_set_rank(std::min(1, p2p.size() - 1));
    model.loss.build_and_set_rank(p2p.size() - 1);

    // Called directly, blocks compute at once. One rank has the result, the others know where it is.
    TensorOrPointer x = TensorPointer{.group_rank = 0};
    if (p2p.rank() == 0) x = at::ones({1, 10}, p2p.device());
    const TensorOrPointer result = model.forward(x);
    if (p2p.rank() == 0)
      std::cout << "the result is on pipeline rank " << (result.is_tensor() ? 0 : result.pointer().group_rank) << "\n";

    OneForwardOneBackward engine(p2p);
    constexpr std::int64_t kMicrobatches = 4, kRows = 8;
    for (int step = 1; step <= 20; ++step) {
      // The data is on rank 0; the other ranks know that it is there.
      std::vector<TensorDict> microbatches;
      for (std::int64_t m = 0; m < kMicrobatches; ++m) {
        at::manual_seed(static_cast<std::uint64_t>(100 * step + m));
        if (p2p.rank() == 0)
          microbatches.push_back({{"x", at::rand({kRows, 10}).to(p2p.device())}});
        else
          microbatches.push_back({{"x", TensorPointer{.group_rank = 0}}});
      }
      const BatchOutcome outcome =
          engine.train_batch([&](const TensorDict& batch) { return model.forward(batch["x"]); }, microbatches,
                             /*loss_gradient=*/1. / (kMicrobatches * kRows));
      context.mesh().end_step();  // throws if the ranks did not make the same calls

      const at::NoGradGuard no_grad;
      for (at::Tensor& parameter : model.parameters()) {  // those of this rank's blocks
        parameter.sub_(parameter.grad(), 1e-2);
        parameter.mutable_grad() = at::Tensor();
      }
      // One rank has the losses; the sums of the others are zero.
      const at::Tensor loss = context.pp_pg().all_reduce(outcome.step.loss_sum).wait();
      if (step % 10 == 0 && p2p.rank() == 0)
        std::cout << "step " << step << ": loss " << loss.item<double>() / (kMicrobatches * kRows) << "\n";
    }
  });
}
