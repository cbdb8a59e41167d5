#include "trireme/parallel/tensor/fp8_matmul.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/nn/fp8_history.hpp"
#include "trireme/parallel/tensor/mlp.hpp"
#include "trireme/testing/nn_helpers.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kFp8Tokens = 64, kFp8Width = 64, kFp8Hidden = 128;

struct Fp8Result {
  at::Tensor y, dx;
  Gradients gradients;
};

/// An MLP of a column and a row linear layer on tp ranks, emulated on the CPU.
Fp8Result run_fp8_mlp(Mesh& mesh, const std::shared_ptr<const Fp8Recipe>& fp8, bool sequence_parallel, bool rebuilds) {
  Parallel parallel{mesh, sequence_parallel};
  parallel.fp8 = fp8;
  GatedMlp mlp(kFp8Width, kFp8Hidden, parallel);
  fill(mlp, mesh);
  const at::Tensor x =
      parallel.own_tokens(normal_tensor({kFp8Tokens, kFp8Width}, 1, "x")).clone().set_requires_grad(true);
  const auto same = [](const std::vector<at::Tensor>& from) { return from[0]; };
  const at::Tensor y = mlp.forward(x, {}, rebuilds ? MaybeRebuild{{{x.detach()}, same}} : std::nullopt, rebuilds);
  y.backward(parallel.own_tokens(normal_tensor({kFp8Tokens, kFp8Width}, 2, "dy")));
  return {y.detach(), x.grad(), whole_gradients(mlp, mesh)};
}

std::shared_ptr<const Fp8Recipe> fp8_recipe_of(kernels::Fp8Scaling scaling) {
  return std::make_shared<const Fp8Recipe>(Fp8Recipe{.scaling = scaling});
}

/// The error of 8 bits, and no more; ranks and recomputation change nothing but the scales of the parts of a tensor.
TEST(Fp8Matmul, IsNearTheProductOnEveryLayout) {
  for (const kernels::Fp8Scaling scaling : {kernels::Fp8Scaling::tensor, kernels::Fp8Scaling::row}) {
    const auto recipe = fp8_recipe_of(scaling);
    Fp8Result exact, one;
    on_tp(1, [&](Mesh& mesh) {
      exact = run_fp8_mlp(mesh, nullptr, false, false);
      one = run_fp8_mlp(mesh, recipe, false, false);
    });
    EXPECT_GT(relative(one.y, exact.y), 1e-3) << "8 bits were used";
    EXPECT_LT(relative(one.y, exact.y), 0.08);
    EXPECT_LT(relative(one.dx, exact.dx), 0.12);
    expect_close(one.gradients, exact.gradients, 0.12);
    for (const int ranks : {1, 2, 4})
      for (const bool sequence_parallel : {false, true})
        for (const bool rebuilds : {false, true})
          on_tp(ranks, [&](Mesh& mesh) {
            const Parallel parallel{mesh, sequence_parallel};
            const Fp8Result some = run_fp8_mlp(mesh, recipe, sequence_parallel, rebuilds);
            const double bound = ranks == 1 ? 1e-12 : 0.02;
            EXPECT_LT(relative(some.y, parallel.own_tokens(one.y)), bound) << ranks << sequence_parallel << rebuilds;
            EXPECT_LT(relative(some.dx, parallel.own_tokens(one.dx)), bound) << ranks << sequence_parallel << rebuilds;
            expect_close(some.gradients, one.gradients, bound);
          });
  }
}

/// A row that is much smaller than the others keeps its bits.
TEST(Fp8Matmul, ScalesOfRowsServeSmallRows) {
  on_tp(1, [&](Mesh& mesh) {
    double error[2];
    for (const auto scaling : {kernels::Fp8Scaling::tensor, kernels::Fp8Scaling::row}) {
      Parallel parallel{mesh};
      const at::Tensor x = normal_tensor({kFp8Tokens, kFp8Width}, 1, "x");
      x[3].mul_(1e-5);
      ColumnLinear exact(kFp8Width, kFp8Hidden, parallel);
      fill(exact, mesh);
      parallel.fp8 = fp8_recipe_of(scaling);
      ColumnLinear rounded(kFp8Width, kFp8Hidden, parallel);
      fill(rounded, mesh);
      error[static_cast<int>(scaling)] = relative(rounded.forward(x)[3], exact.forward(x)[3]);
    }
    EXPECT_GT(error[0], 0.5) << "below the least number of the tensor's scale";
    EXPECT_LT(error[1], 0.08);
  });
}

TEST(Fp8Matmul, ScalesFollowPastSteps) {
  on_tp(1, [&](Mesh& mesh) {
    const auto history = std::make_shared<Fp8History>(at::kCPU);
    Parallel parallel{mesh};
    ColumnLinear exact(kFp8Width, kFp8Hidden, parallel);
    fill(exact, mesh);
    parallel.fp8 = std::make_shared<const Fp8Recipe>(Fp8Recipe{.history = history});
    ColumnLinear layer(kFp8Width, kFp8Hidden, parallel);
    fill(layer, mesh);
    const at::Tensor x = normal_tensor({kFp8Tokens, kFp8Width}, 1, "x");
    const auto error = [&](double factor) {
      const at::Tensor in = x * factor;
      const at::Tensor y = layer.forward(in);
      if (y.requires_grad()) y.sum().backward();
      return relative(y.detach(), exact.forward(in).detach());
    };
    history->begin_step();
    EXPECT_LT(error(1), 0.08) << "the first step has its own scales";
    history->begin_step();
    EXPECT_LT(error(1), 0.08);
    EXPECT_GT(error(1000), 0.5) << "more than ever before saturates";
    {
      const at::NoGradGuard validation;
      EXPECT_GT(error(1e6), 0.5);
    }
    history->begin_step();
    EXPECT_LT(error(1000), 0.08) << "and is known in the next step";
    EXPECT_GT(error(1e6), 0.5) << "but what validation has seen is not";
    for (std::int64_t step = 0; step < Fp8History::kSteps + 2; ++step) {
      history->begin_step();
      error(1e-3);
    }
    EXPECT_LT(error(1e-3), 0.08) << "and is forgotten after enough steps";
  });
}

/// Largest elements of skipped steps, which may be anything, decide no scale; and a history that was saved goes on as
/// the one that it was saved of.
TEST(Fp8Matmul, HistoryIsSavedAndSkippedStepsAreDiscarded) {
  on_tp(1, [&](Mesh& mesh) {
    const at::Tensor x = normal_tensor({kFp8Tokens, kFp8Width}, 1, "x");
    struct Run {
      std::shared_ptr<Fp8History> history = std::make_shared<Fp8History>(at::kCPU);
      std::shared_ptr<ColumnLinear> layer;
      explicit Run(Mesh& mesh) {
        Parallel parallel{mesh};
        parallel.fp8 = std::make_shared<const Fp8Recipe>(Fp8Recipe{.history = history});
        layer = std::make_shared<ColumnLinear>(kFp8Width, kFp8Hidden, parallel);
        fill(*layer, mesh);
      }
      at::Tensor step(const at::Tensor& in) {
        history->begin_step();
        const at::Tensor y = layer->forward(in);
        y.sum().backward();
        return y.detach();
      }
    };
    Run plain(mesh), skipped_at_once(mesh), skipped_late(mesh), not_finite(mesh);
    for (Run* run : {&plain, &skipped_at_once, &skipped_late, &not_finite}) run->step(x);
    skipped_at_once.step(x * 1e4);
    skipped_at_once.history->discard(/*is_newest=*/true);
    skipped_late.step(x * 1e4);
    skipped_late.step(x);
    skipped_late.history->discard(/*is_newest=*/false);
    not_finite.step(x / 0);
    const at::Tensor expected = plain.step(x);
    EXPECT_TRUE(at::equal(skipped_at_once.step(x), expected));
    EXPECT_TRUE(at::equal(skipped_late.step(x), expected));
    EXPECT_TRUE(at::equal(not_finite.step(x), expected));

    Run resumed(mesh), forgetful(mesh);
    plain.step(x * 300);
    EXPECT_TRUE(resumed.history->set_state(plain.history->state()));
    const at::Tensor next = plain.step(x * 0.01);
    EXPECT_TRUE(at::equal(resumed.step(x * 0.01), next));
    EXPECT_FALSE(at::equal(forgetful.step(x * 0.01), next)) << "a test that could not fail";
    Fp8History other(at::kCPU);
    other.add(kernels::Fp8::e4m3);
    EXPECT_FALSE(other.set_state(plain.history->state()));
    EXPECT_FALSE(resumed.history->set_state({}));
  });
}

TEST(Fp8Matmul, OddSizesAreNamed) {
  on_tp(1, [&](Mesh& mesh) {
    Parallel parallel{mesh};
    parallel.fp8 = fp8_recipe_of(kernels::Fp8Scaling::tensor);
    ColumnLinear layer(kFp8Width, kFp8Hidden, parallel);
    fill(layer, mesh);
    try {
      layer.forward(normal_tensor({17, kFp8Width}, 1, "x"));
      FAIL();
    } catch (const ConfigError& e) {
      EXPECT_NE(std::string(e.what()).find("17 tokens"), std::string::npos) << e.what();
    }
  });
}

/// The logits stay as they are.
TEST(Fp8Matmul, IsNotForTheHead) {
  on_tp(1, [&](Mesh& mesh) {
    Parallel parallel{mesh};
    at::Tensor y[2];
    for (const bool fp8 : {false, true}) {
      if (fp8) parallel.fp8 = fp8_recipe_of(kernels::Fp8Scaling::tensor);
      ColumnLinear head(kFp8Width, kFp8Hidden, parallel, {.padded = true});
      fill(head, mesh);
      y[fp8] = head.forward(normal_tensor({kFp8Tokens, kFp8Width}, 1, "x"));
    }
    EXPECT_TRUE(y[0].equal(y[1]));
  });
}

}  // namespace
}  // namespace trireme
