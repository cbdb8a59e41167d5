#include "trireme/parallel/tensor/linear.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/testing/nn_helpers.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kTokens = 12, kIn = 16, kOut = 24;

struct LinearReference {
  at::Tensor y, dx;
  Gradients grads;
};

struct LinearCase {
  bool sequence_parallel, bias;
  std::vector<Section> sections;
};

const std::vector<LinearCase> kCases{{false, false, {}},
                                     {false, true, {}},
                                     {true, false, {}},
                                     {true, true, {}},
                                     {true, true, {{8, 0}, {16, 0}}},
                                     {false, true, {{16, 4}, {4, 1}, {4, 1}}}};

TEST(ColumnLinear, EqualsOneRank) {
  for (const LinearCase& c : kCases) {
    const at::Tensor x0 = normal_tensor({kTokens, kIn}, 1, "x"), dy0 = normal_tensor({kTokens, kOut}, 2, "dy");
    LinearReference reference;
    for (const int ranks : {1, 2, 4}) {
      on_tp(ranks, [&](Mesh& mesh) {
        const Parallel parallel{mesh, c.sequence_parallel};
        ColumnLinear layer(kIn, kOut, parallel, {.bias = c.bias, .sections = c.sections});
        fill(layer, mesh);
        const at::Tensor x = parallel.own_tokens(x0).clone().set_requires_grad(true);
        const at::Tensor y = layer.forward(x);
        // This rank's columns of the full dy, by the pieces of a parameter with the same sharding.
        const ParamSpec columns{.shape = {kTokens, kOut}, .placement = {{{Axis::tp, 1, c.sections}}}};
        at::Tensor dy = at::zeros(y.sizes(), at::kDouble);
        for (const Piece& p : ParamMesh(mesh).pieces(columns))
          box_view(dy, box_of(p.slices.local_slices)).copy_(box_view(dy0, box_of(p.slices.global_slices)));
        const bool shares_heads = !c.sections.empty() && c.sections.back().granules == 1;
        if (shares_heads && ranks > 1) {
          // Each rank uses its copy of a shared head separately: the parts of dy sum to the full dy.
          dy.narrow(1, 16 / ranks, 8).div_(ranks);
        }
        y.backward(dy);
        const Gradients grads = whole_gradients(layer, mesh);
        if (ranks == 1) {
          reference = {y.detach(), x.grad(), grads};
          return;
        }
        for (const Piece& p : ParamMesh(mesh).pieces(columns))
          EXPECT_LT(relative(box_view(y, box_of(p.slices.local_slices)),
                             box_view(reference.y, box_of(p.slices.global_slices))),
                    1e-14);
        EXPECT_LT(relative(x.grad(), parallel.own_tokens(reference.dx)), 1e-13);
        expect_close(grads, reference.grads);
      });
    }
  }
}

TEST(RowLinear, EqualsOneRank) {
  for (const bool sequence_parallel : {false, true})
    for (const bool input_is_parallel : {false, true}) {
      const at::Tensor x0 = normal_tensor({kTokens, kIn}, 1, "x"), dy0 = normal_tensor({kTokens, kOut}, 2, "dy");
      LinearReference reference;
      for (const int ranks : {1, 2, 4}) {
        on_tp(ranks, [&](Mesh& mesh) {
          const Parallel parallel{mesh, sequence_parallel};
          RowLinear layer(kIn, kOut, parallel, {.bias = true, .input_is_parallel = input_is_parallel});
          fill(layer, mesh);
          const std::int64_t part = kIn / ranks;
          const auto own_features = [&](const at::Tensor& t) {
            return input_is_parallel ? t.narrow(1, mesh.rank() * part, part) : t;
          };
          const at::Tensor x = own_features(x0).clone().set_requires_grad(true);
          const at::Tensor y = layer.forward(x);
          y.backward(parallel.own_tokens(dy0));
          const Gradients grads = whole_gradients(layer, mesh);
          if (ranks == 1) {
            reference = {y.detach(), x.grad(), grads};
            return;
          }
          EXPECT_LT(relative(y, parallel.own_tokens(reference.y)), 1e-13);
          EXPECT_LT(relative(x.grad(), own_features(reference.dx)), 1e-13);
          expect_close(grads, reference.grads);
        });
      }
    }
}

TEST(Linear, GatherOutputIsWholeAndItsGradientCountsOnce) {
  const at::Tensor x0 = normal_tensor({kTokens, kIn}, 1, "x");
  at::Tensor y1, dx1;
  for (const int ranks : {1, 2, 4})
    on_tp(ranks, [&](Mesh& mesh) {
      ColumnLinear layer(kIn, kOut, mesh, {.bias = true, .gather_output = true});
      fill(layer, mesh);
      const at::Tensor x = x0.clone().set_requires_grad(true);
      const at::Tensor y = layer.forward(x);
      y.square().sum().backward();
      if (ranks == 1) {
        y1 = y.detach();
        dx1 = x.grad();
      }
      EXPECT_EQ(y.sizes(), (at::IntArrayRef{kTokens, kOut}));
      EXPECT_LT(relative(y, y1), 1e-14);
      EXPECT_LT(relative(x.grad(), dx1), 1e-13);
    });
}

TEST(Linear, ARebuiltInputGivesTheSameBits) {
  on_tp(2, [&](Mesh& mesh) {
    for (const bool sequence_parallel : {false, true}) {
      const Parallel parallel{mesh, sequence_parallel};
      ColumnLinear layer(kIn, kOut, parallel);
      fill(layer, mesh);
      std::vector<at::Tensor> dx, dw;
      for (const bool rebuilt : {false, true}) {
        const at::Tensor x = parallel.own_tokens(normal_tensor({kTokens, kIn}, 1, "x")).clone().set_requires_grad(true);
        const auto square = [](const std::vector<at::Tensor>& from) { return from[0].square(); };
        layer.zero_grad();
        layer.forward(square({x}), rebuilt ? MaybeRebuild{{{x}, square}} : std::nullopt).sum().backward();
        dx.push_back(x.grad());
        dw.push_back(layer.weight_fD.grad().clone());
      }
      EXPECT_TRUE(dx[0].equal(dx[1]));
      EXPECT_TRUE(dw[0].equal(dw[1]));
    }
  });
}

TEST(Linear, WhatDoesNotFitIsNamed) {
  on_tp(2, [&](Mesh& mesh) {
    const Parallel parallel{mesh, true};
    EXPECT_THROW(ColumnLinear(kIn, 25, parallel), ConfigError);
    EXPECT_THROW(RowLinear(17, kOut, parallel), ConfigError);
    EXPECT_THROW(parallel.own_tokens(at::zeros({3, 2})), ConfigError);
    EXPECT_THROW(ColumnLinear(kIn, kOut, parallel, {.gather_output = true, .sections = {{12, 0}, {12, 0}}}),
                 InternalError);
    ColumnLinear layer(kIn, kOut, parallel);
    EXPECT_THROW(layer.forward(at::zeros({4, kIn + 1}, at::kDouble)), InternalError);
  });
}

}  // namespace
}  // namespace trireme
