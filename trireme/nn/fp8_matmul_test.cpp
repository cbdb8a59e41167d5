#include "trireme/nn/fp8_matmul.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/nn/mlp.hpp"
#include "trireme/testing/nn_helpers.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kFp8Tokens = 64, kFp8Width = 64, kFp8Hidden = 128;

struct Fp8Result {
  at::Tensor y, dx;
  Gradients gradients;
};

/// An MLP of a column and a row linear layer on tp ranks, emulated on the CPU.
Fp8Result run_fp8_mlp(Mesh& mesh, bool fp8, bool sequence_parallel, bool rebuilds) {
  Parallel parallel{mesh, sequence_parallel};
  parallel.fp8 = fp8;
  SwigluMlp mlp(kFp8Width, kFp8Hidden, parallel);
  fill(mlp, mesh);
  const at::Tensor x =
      parallel.own_tokens(normal_tensor({kFp8Tokens, kFp8Width}, 1, "x")).clone().set_requires_grad(true);
  const auto same = [](const std::vector<at::Tensor>& from) { return from[0]; };
  const at::Tensor y = mlp.forward(x, {}, rebuilds ? MaybeRebuild{{{x.detach()}, same}} : std::nullopt, rebuilds);
  y.backward(parallel.own_tokens(normal_tensor({kFp8Tokens, kFp8Width}, 2, "dy")));
  return {y.detach(), x.grad(), whole_gradients(mlp, mesh)};
}

/// The error of 8 bits, and no more; ranks and recomputation change nothing but the scales of the parts of a tensor.
TEST(Fp8Matmul, IsNearTheProductOnEveryLayout) {
  Fp8Result exact, one;
  on_tp(1, [&](Mesh& mesh) {
    exact = run_fp8_mlp(mesh, false, false, false);
    one = run_fp8_mlp(mesh, true, false, false);
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
          const Fp8Result some = run_fp8_mlp(mesh, true, sequence_parallel, rebuilds);
          const double bound = ranks == 1 ? 1e-12 : 0.02;
          EXPECT_LT(relative(some.y, parallel.own_tokens(one.y)), bound) << ranks << sequence_parallel << rebuilds;
          EXPECT_LT(relative(some.dx, parallel.own_tokens(one.dx)), bound) << ranks << sequence_parallel << rebuilds;
          expect_close(some.gradients, one.gradients, bound);
        });
}

TEST(Fp8Matmul, OddSizesAreNamed) {
  on_tp(1, [&](Mesh& mesh) {
    Parallel parallel{mesh};
    parallel.fp8 = true;
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
      parallel.fp8 = fp8;
      ColumnLinear head(kFp8Width, kFp8Hidden, parallel, {.padded = true});
      fill(head, mesh);
      y[fp8] = head.forward(normal_tensor({kFp8Tokens, kFp8Width}, 1, "x"));
    }
    EXPECT_TRUE(y[0].equal(y[1]));
  });
}

}  // namespace
}  // namespace trireme
