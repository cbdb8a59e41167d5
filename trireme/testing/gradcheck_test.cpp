#include "trireme/testing/gradcheck.hpp"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/comm/differentiable.hpp"
#include "trireme/comm/self_group.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using GradcheckTensors = std::vector<at::Tensor>;
using testing::AllOf;
using testing::HasSubstr;

/// Weights of the loss, and x: different per rank, or the same on all.
at::Tensor gradcheck_own(at::IntArrayRef sizes, const Group& group, const char* purpose) {
  return normal_tensor(sizes, 1, text(purpose, " of rank ", group.rank()));
}
at::Tensor gradcheck_shared(at::IntArrayRef sizes, const char* purpose) { return normal_tensor(sizes, 1, purpose); }

/// Nonlinear, to detect a gradient taken at the wrong point.
at::Tensor gradcheck_loss(const at::Tensor& y, const at::Tensor& weights) {
  return (y.sin() * weights).sum() + (y * y).sum();
}

TEST(Gradcheck, AcceptsTheGradientsOfTorch) {
  SelfGroup solo;
  const GradcheckResult result =
      gradcheck(solo,
                [](const GradcheckTensors& x) {
                  return at::log_softmax(at::linear(x[0], x[1], x[2]).tanh(), 1).select(1, 2).sum();
                },
                {{"x", gradcheck_shared({3, 5}, "x"), Across::varying},
                 {"weight", gradcheck_shared({4, 5}, "weight"), Across::replicated},
                 {"bias", gradcheck_shared({4}, "bias"), Across::replicated}},
                Across::varying, {.directions = 5});
  EXPECT_TRUE(result.ok) << result.failure;
  EXPECT_EQ(result.comparisons, 15);
  EXPECT_LT(result.worst, 1e-7);
  EXPECT_GT(result.worst, 0);
}

TEST(Gradcheck, SeesAnErrorOfOnePartInAHundredThousand) {
  SelfGroup solo;
  struct SlightlyWrong : torch::autograd::Function<SlightlyWrong> {
    static at::Tensor forward(torch::autograd::AutogradContext* /*ctx*/, const at::Tensor& x) { return 2 * x; }
    static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* /*ctx*/,
                                                 torch::autograd::tensor_list dy) {
      return {2.00002 * dy[0]};
    }
  };
  const GradcheckResult result = gradcheck(
      solo, [](const GradcheckTensors& x) { return SlightlyWrong::apply(x[0]).sum(); },
      {{"x", gradcheck_shared({3}, "x")}}, Across::varying);
  EXPECT_FALSE(result.ok);
  EXPECT_NEAR(result.worst, 1e-5, 1e-6);
}

TEST(Gradcheck, AcceptsAnInputThatTheLossDoesNotUse) {
  SelfGroup solo;
  const GradcheckResult result = gradcheck(
      solo, [](const GradcheckTensors& x) { return x[0].sum(); },
      {{"x", gradcheck_shared({3}, "x")}, {"unused", gradcheck_shared({2}, "unused")}}, Across::varying);
  EXPECT_TRUE(result.ok) << result.failure;
}

class GradcheckOver : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, GradcheckOver, testing::Values(2, 4));

TEST_P(GradcheckOver, CountsAndNamesWhatItCompared) {
  run_ranks(GetParam(), [](Group& g) {
    const at::Tensor weights = gradcheck_own({2, 3}, g, "weights");
    const GradcheckResult result = gradcheck(
        g,
        [&](const GradcheckTensors& x) { return gradcheck_loss(differentiable::sum_grads(x[0], g) * x[1], weights); },
        {{"x", gradcheck_shared({2, 3}, "x"), Across::replicated},
         {"scale", gradcheck_own({3}, g, "scale"), Across::varying}},
        Across::varying);
    EXPECT_TRUE(result.ok) << result.failure;
    EXPECT_EQ(result.comparisons, 2 * 3 * g.size());
  });
}

// Bugs that gradcheck must find; each has occurred in practice.

TEST_P(GradcheckOver, CatchesAMissingReduction) {
  run_ranks(GetParam(), [](Group& g) {
    const at::Tensor weights = gradcheck_own({3}, g, "weights");
    // x is replicated and used differently per rank: sum_grads is missing.
    const GradcheckResult result = gradcheck(
        g, [&](const GradcheckTensors& x) { return gradcheck_loss(x[0], weights); },
        {{"x", gradcheck_shared({3}, "x"), Across::replicated}}, Across::varying);
    EXPECT_FALSE(result.ok);
    EXPECT_THAT(result.failure, AllOf(HasSubstr("input x (replicated), rank 0 of"), HasSubstr("direction 0"),
                                      HasSubstr("backward gives"), HasSubstr("differences of the varying loss give")));
  });
}

TEST_P(GradcheckOver, CatchesAFactorOfTheGroupsSize) {
  run_ranks(GetParam(), [](Group& g) {
    const at::Tensor weights = gradcheck_shared({3 * g.size()}, "weights");
    // The result is used as replicated: gather_replicated is right, all_gather sums n equal gradients.
    const GradcheckResult result = gradcheck(
        g, [&](const GradcheckTensors& x) { return gradcheck_loss(differentiable::all_gather(x[0], 0, g), weights); },
        {{"x", gradcheck_own({3}, g, "x"), Across::varying}}, Across::replicated);
    EXPECT_FALSE(result.ok);
    EXPECT_THAT(result.failure, HasSubstr(text("ratio ", g.size())));
  });
}

TEST_P(GradcheckOver, CatchesAllReduceInBothDirections) {
  struct Twice : torch::autograd::Function<Twice> {
    struct Held final : torch::CustomClassHolder {
      explicit Held(Group& g) : group(g) {}
      Group& group;
    };
    static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, Group* group) {
      ctx->saved_data["group"] = c10::IValue::make_capsule(c10::make_intrusive<Held>(*group));
      return group->all_reduce(x).wait();
    }
    static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::tensor_list dy) {
      const auto held = ctx->saved_data["group"].toCapsule();
      return {static_cast<const Held&>(*held).group.all_reduce(dy[0].contiguous()).wait(), at::Tensor()};
    }
  };
  run_ranks(GetParam(), [](Group& g) {
    const at::Tensor weights = gradcheck_shared({3}, "weights");
    const auto loss = [&](const GradcheckTensors& x) { return gradcheck_loss(Twice::apply(x[0], &g), weights); };
    const std::vector<GradcheckInput> inputs{{"x", gradcheck_own({3}, g, "x"), Across::varying}};
    EXPECT_FALSE(gradcheck(g, loss, inputs, Across::replicated).ok);
    // It is the adjoint if each rank uses the sum differently: the declared loss kind decides.
    EXPECT_TRUE(gradcheck(g, loss, inputs, Across::varying).ok);
  });
}

TEST_P(GradcheckOver, CatchesAWrongRankAlone) {
  run_ranks(GetParam(), [](Group& g) {
    const int last = g.size() - 1;
    const GradcheckResult result = gradcheck(
        g,
        [&](const GradcheckTensors& x) {
          // The graph is detached on the last rank.
          return (g.rank() == last ? x[0].detach() * x[0].detach() + 0 * x[0] : x[0] * x[0]).sum();
        },
        {{"x", gradcheck_own({3}, g, "x"), Across::varying}}, Across::varying);
    EXPECT_FALSE(result.ok);
    EXPECT_THAT(result.failure, HasSubstr(text("input x (varying), rank ", last, " of ", g.size())));
  });
}

TEST_P(GradcheckOver, CatchesALossThatIsNotReplicated) {
  run_ranks(GetParam(), [](Group& g) {
    const GradcheckResult result = gradcheck(
        g, [&](const GradcheckTensors& x) { return x[0].sum() * (1 + 1e-9 * g.rank()); },
        {{"x", gradcheck_shared({3}, "x"), Across::replicated}}, Across::replicated);
    EXPECT_FALSE(result.ok);
    EXPECT_THAT(result.failure, HasSubstr("the loss is declared replicated, but is"));
  });
}

TEST_P(GradcheckOver, RefusesAnInputThatIsNotReplicated) {
  run_ranks(GetParam(), [](Group& g) {
    const std::string words = message_of<InternalError>([&] {
      gradcheck(
          g, [](const GradcheckTensors& x) { return x[0].sum(); },
          {{"x", gradcheck_own({3}, g, "x"), Across::replicated}}, Across::varying);
    });
    EXPECT_THAT(words, HasSubstr("input x is declared replicated, but the ranks do not have the same"));
  });
}

TEST(Gradcheck, RefusesASmallerDtypeAndALossOfManyNumbers) {
  SelfGroup solo;
  const at::Tensor x = gradcheck_shared({3}, "x");
  const auto sum = [](const GradcheckTensors& in) { return in[0].sum(); };
  EXPECT_THAT(message_of<InternalError>([&] { gradcheck(solo, sum, {{"x", x.to(at::kFloat)}}, Across::varying); }),
              HasSubstr("input x must be f64"));
  EXPECT_THAT(message_of<InternalError>([&] {
                gradcheck(solo, [](const GradcheckTensors& in) { return in[0] * 2; }, {{"x", x}}, Across::varying);
              }),
              HasSubstr("the loss must be one f64 number"));
}

TEST(Gradcheck, ANotANumberIsAFailure) {
  SelfGroup solo;
  const GradcheckResult result = gradcheck(
      solo, [](const GradcheckTensors& x) { return (x[0] - 100).log().sum(); }, {{"x", gradcheck_shared({3}, "x")}},
      Across::varying);
  EXPECT_FALSE(result.ok);
}

TEST(Gradcheck, LeavesTheInputsAlone) {
  SelfGroup solo;
  const at::Tensor x = gradcheck_shared({3}, "x"), before = x.clone();
  gradcheck(solo, [](const GradcheckTensors& in) { return in[0].sum(); }, {{"x", x}}, Across::varying);
  EXPECT_TRUE(at::equal(x, before));
  EXPECT_FALSE(x.requires_grad());
}

TEST(NormalTensor, DependsOnSeedAndPurposeAlone) {
  const at::Tensor x = normal_tensor({100, 100}, 3, "x");
  EXPECT_TRUE(at::equal(x, normal_tensor({100, 100}, 3, "x")));
  EXPECT_FALSE(at::equal(x, normal_tensor({100, 100}, 4, "x")));
  EXPECT_FALSE(at::equal(x, normal_tensor({100, 100}, 3, "y")));
  EXPECT_NEAR(x.mean().item<double>(), 0, 0.05);
  EXPECT_NEAR(x.std().item<double>(), 1, 0.05);
}

}  // namespace
}  // namespace trireme
