#include "trireme/train/step/non_finite.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/parallel/pipeline/executor.hpp"
#include "trireme/schedule/generate.hpp"
#include "trireme/testing/test_helpers.hpp"
#include "trireme/testing/zero_helpers.hpp"

namespace trireme {
namespace {

/// Each kind of fault on each rank is named, with the same message on all ranks.
TEST(NonFinite, NamesTheFirstRankAndTensor) {
  enum class Fault { none, output, loss, gradient, sum };
  constexpr int kDp = 3;
  for (const int stage : {0, 2, 3})
    for (const Fault fault : {Fault::none, Fault::output, Fault::loss, Fault::gradient, Fault::sum})
      for (int bad = 0; bad < kDp; ++bad)
        run_ranks(kDp, [&](World& world) {
          Mesh mesh(Grid::dense({.dp = kDp}), world);
          test::UnitNet net;
          Zero zero(params_of(net), net.units(), mesh,
                    {.stage = stage, .persistence_threshold = 0, .accumulate = at::kDouble, .reduce = at::kDouble},
                    {.optimizer = {}, .master = at::kDouble, .states = at::kDouble});
          net.units(&zero.chunk());
          Executor executor(schedule::make_schedule("1f1b", 1, 2), zero, mesh);
          const bool here = mesh.rank() == bad;
          const std::string words = find_non_finite(zero, mesh, [&](const StepProbes& probes) {
            const auto loss_of = [&](int m) -> at::Tensor {
              at::Tensor loss = net.loss(test::rows().narrow(0, 8 * mesh.rank() + 4 * m, 4));
              const bool now = here && m == 1;
              probes.output(m, "layers.3", now && fault == Fault::output ? loss / 0 : loss);
              if (now && fault == Fault::loss) return loss * HUGE_VAL;
              // A finite loss with a non-finite gradient: the square root at zero.
              if (now && fault == Fault::gradient) return (loss - loss.detach()).sqrt() + loss;
              // Finite on every rank, but the sum overflows.
              if (fault == Fault::sum && m == 1 && stage < 3)
                return net.named_parameters()["layer1.bias"].sum() * 8e307;
              return loss;
            };
            executor.run({.step = 7,
                          .forward = whole_model([&](int m) {
                            at::Tensor loss = loss_of(m);
                            probes.loss(m, loss);
                            return loss;
                          }),
                          .loss_gradient = [] { return at::ones({}, at::kDouble); }});
          });
          const std::string rank = text("on rank ", bad);
          switch (fault) {
            case Fault::none: EXPECT_THAT(words, testing::HasSubstr("not reproduced")); break;
            case Fault::output:
              EXPECT_EQ(words, text("first non-finite value: the output of layers.3 in microbatch 1 ", rank));
              break;
            case Fault::loss: EXPECT_EQ(words, text("first non-finite value: the loss in microbatch 1 ", rank)); break;
            case Fault::gradient:
              EXPECT_THAT(words,
                          testing::MatchesRegex("first non-finite value: the gradient of .* in microbatch 1 " + rank));
              break;
            case Fault::sum:  // in stage 3 the weights that the loss above needs are already freed
              if (stage < 3) {
                EXPECT_THAT(words, testing::HasSubstr(
                                       "the sum of all ranks' gradients of layer1.bias; each rank's own is finite"));
              }
              break;
          }
        });
}

TEST(CheckTrained, WeightsThatAreNotFiniteOrNeverUpdatedAreAnError) {
  const SavedWeights good{"runs/x/checkpoints/step-20", {}},
      bad{"runs/x/checkpoints/step-20", {"head.weight", "norm.weight"}};
  EXPECT_NO_THROW(check_trained(20, 0, good));
  EXPECT_NO_THROW(check_trained(20, 19, good));
  EXPECT_NO_THROW(check_trained(0, 0, good));
  EXPECT_EQ(
      message_of<NonFiniteError>([&] { check_trained(20, 20, good); }),
      "all 20 updates were skipped: no gradient was finite, and nothing was trained\n  the weights are the initial "
      "ones, saved in runs/x/checkpoints/step-20\n  fix: a lower optimizer.lr, a longer warm-up, or other initial "
      "weights");
  EXPECT_EQ(message_of<NonFiniteError>([&] { check_trained(20, 20, bad); }),
            "the weights after step 20 are not finite, saved in runs/x/checkpoints/step-20\n  not finite in the saved "
            "weights: head.weight and 1 more parameter\n  all 20 updates were skipped\n  fix: a lower optimizer.lr, a "
            "longer warm-up, or other initial weights");
}

}  // namespace
}  // namespace trireme
