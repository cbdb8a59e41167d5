// The executor with several pipeline ranks, in virtual time: every action takes a given time, and what a chunk sends is
// the time at which it was ready. So the order and the bubble of what was executed can be compared with replay().
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/kernels/matmul/gradient_place.hpp"
#include "trireme/parallel/pipeline/executor.hpp"
#include "trireme/schedule/generate.hpp"
#include "trireme/schedule/replay.hpp"
#include "trireme/testing/gloo_threads.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

/// The time of one rank, and when each of its actions ran.
struct VirtualClock : torch::CustomClassHolder {
  schedule::ActionCosts costs;
  double now = 0;
  std::vector<schedule::Interval> intervals{};

  void run(double ready, double cost) {
    const double begin = std::max(now, ready);
    now = begin + cost;
    intervals.push_back({begin, now});
  }
};
using Clock = c10::intrusive_ptr<VirtualClock>;

/// y = the time at which the forward of a chunk is over. The gradient of x is the time at which that of its input is.
struct TakeTime : torch::autograd::Function<TakeTime> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const Clock& clock) {
    ctx->saved_data["clock"] = c10::IValue::make_capsule(clock);
    ctx->save_for_backward({weight});
    clock->run(x.item<double>(), clock->costs.F);
    return at::full_like(x, clock->now);
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* ctx,
                                               torch::autograd::tensor_list gradients) {
    const auto capsule = ctx->saved_data["clock"].toCapsule();
    const auto clock = c10::static_intrusive_pointer_cast<VirtualClock>(capsule);
    clock->run(gradients[0].item<double>(), clock->costs.I);
    // In a full backward this runs at once, and else in the action W.
    const at::Tensor dweight =
        kernels::write_gradient(ctx->get_saved_variables()[0], [clock](const at::Tensor& value, bool is_empty) {
          if (is_empty) value.zero_();
          value.add_(1);
          clock->run(0, clock->costs.W);
        });
    return {at::full_like(gradients[0], clock->now), dweight, at::Tensor()};
  }
};

struct Executed {
  schedule::Program program;
  std::vector<schedule::Interval> intervals;  // I and W of a full backward are one
  double idle = 0;
  int peak_live = 0;
  double weight_gradient = 0;
};

/// Every rank as a thread; `chunks_per_rank` scales the costs as in replay().
std::vector<Executed> execute(const schedule::Schedule& schedule, const schedule::ActionCosts& costs) {
  std::vector<Executed> all(static_cast<std::size_t>(schedule.ranks()));
  run_ranks(schedule.ranks(), [&](World& world) {
    Mesh mesh(Grid::dense({.pp = schedule.ranks()}), world);
    const auto clock = c10::make_intrusive<VirtualClock>();
    const double share = 1.0 / schedule.chunks_per_rank();
    clock->costs = {costs.F * share, costs.I * share, costs.W * share};
    std::vector<ModelChunk> chunks;
    std::map<int, at::Tensor> weights;
    for (int c = 0; c < schedule.chunks(); ++c) {
      if (schedule.rank_of_chunk[static_cast<std::size_t>(c)] != mesh.rank()) continue;
      weights[c] = at::zeros({3}, at::kDouble).requires_grad_();
      chunks.push_back({.params = {{text("chunk", c), weights[c], {.shape = {3}}, false}}, .number = c});
    }
    Zero zero(std::move(chunks), mesh, {.stage = 0, .accumulate = at::kDouble, .reduce = at::kDouble},
              {.optimizer = {}, .master = at::kDouble, .states = at::kDouble});
    Executor executor(schedule, zero, mesh);
    const StepOutcome outcome = executor.run(
        {.forward =
             [&](int chunk, int, const std::vector<Tensors>& inputs) {
               const at::Tensor x = inputs.empty() ? at::zeros({1}, at::kDouble) : inputs[0][0];
               const at::Tensor y = TakeTime::apply(x, weights.at(chunk), clock);
               return chunk + 1 == schedule.chunks() ? ChunkOutput(y[0]) : ChunkOutput(std::vector<Tensors>{{y}});
             },
         .loss_gradient = [] { return at::zeros({}, at::kDouble); }});
    zero.finish_gradients();
    Executed& own = all[static_cast<std::size_t>(mesh.rank())];
    std::size_t next = 0;
    double busy = 0;
    for (const ActionSpan& span : outcome.spans) {
      own.program.push_back(span.action);
      schedule::Interval interval = clock->intervals.at(next++);
      if (span.action.op == schedule::ActionKind::B) interval.end = clock->intervals.at(next++).end;
      own.intervals.push_back(interval);
      busy += interval.end - interval.start;
    }
    EXPECT_EQ(next, clock->intervals.size());
    own.idle = own.intervals.back().end - own.intervals.front().start - busy;
    own.peak_live = outcome.peak_live;
    own.weight_gradient = zero.parts()[0]->gradients.shard(0)[0].item<double>();
  });
  return all;
}

TEST(Pipeline, ExecutesTheProgramInTheTimesOfTheReplay) {
  for (const std::string& name : schedule::schedule_names())
    for (const int ranks : {2, 3, 4})
      for (const int microbatches : {1, 2, 3, 8})
        for (const schedule::ActionCosts& costs : {schedule::ActionCosts{}, schedule::ActionCosts{3, 2, 1}}) {
          const schedule::Schedule schedule = schedule::make_schedule(name, ranks, microbatches, 2);
          const schedule::Replay replayed = schedule::replay(schedule, costs);
          const std::vector<Executed> executed = execute(schedule, costs);
          for (int r = 0; r < ranks; ++r) {
            SCOPED_TRACE(text(name, " with ", ranks, " ranks and ", microbatches, " microbatches, rank ", r));
            const Executed& own = executed[static_cast<std::size_t>(r)];
            const schedule::RankReplay& expected = replayed.ranks[static_cast<std::size_t>(r)];
            EXPECT_EQ(str(own.program), str(schedule.programs[static_cast<std::size_t>(r)]));
            for (std::size_t i = 0; i < expected.steps.size(); ++i) {
              EXPECT_NEAR(own.intervals[i].start, expected.steps[i].start, 1e-9) << str(own.program[i]);
              EXPECT_NEAR(own.intervals[i].end, expected.steps[i].end, 1e-9) << str(own.program[i]);
            }
            EXPECT_NEAR(own.idle, expected.idle, 1e-9);
            EXPECT_EQ(own.peak_live, expected.peak_live);
            EXPECT_EQ(own.weight_gradient, microbatches) << "a gradient per microbatch";
          }
        }
}

/// The table of docs/parallelism/pipeline.md, as executed.
TEST(Pipeline, BubblesAreThoseOfTheFormulas) {
  const int p = 4, m = 8;
  const auto bubble = [&](const char* name) {
    double idle = 0;
    for (const Executed& rank : execute(schedule::make_schedule(name, p, m, 2), {})) idle = std::max(idle, rank.idle);
    return idle;
  };
  EXPECT_NEAR(bubble("afab"), (p - 1) * 3, 1e-9);
  EXPECT_NEAR(bubble("1f1b"), (p - 1) * 3, 1e-9);
  EXPECT_NEAR(bubble("interleaved-1f1b"), (p - 1) * 3 / 2.0, 1e-9);
  EXPECT_NEAR(bubble("zb1p"), (p - 1) * 1, 1e-9);
  EXPECT_NEAR(bubble("zbv"), 0, 1e-9);
  EXPECT_NEAR(bubble("dualpipe-v"), (p - 1) / 2.0, 1e-9);
}

/// Several tensors of different shapes and dtypes, one of them without a gradient, over real sockets.
TEST(Transfer, SeveralTensorsOfAnyShape) {
  run_gloo_threads(2, [](World& world) {
    Mesh mesh(Grid::dense({.pp = 2}), world);
    Transfer transfer(schedule::make_schedule("1f1b", 2, 3), mesh, at::kCPU);
    const auto tensors = [](int m) {
      return Tensors{at::full({2, 3}, 1.0 + m, at::kDouble).requires_grad_(), at::full({4}, m, at::kLong),
                     at::full({}, 7.0F + static_cast<float>(m)).requires_grad_(), at::zeros({0, 5})};
    };
    for (int step = 0; step < 2; ++step) {
      transfer.begin_step([](int) { return 0; });
      const auto id = [](TransferId::What what, int m) { return TransferId{what, 0, m}; };
      constexpr auto kForward = TransferId::What::activations, kBackward = TransferId::What::gradients;
      if (mesh.rank() == 0) {
        for (int m = 0; m < 3; ++m) transfer.send(id(kForward, m), tensors(m));
        for (int m = 0; m < 3; ++m) {
          transfer.prefetch(id(kBackward, m));
          const Tensors gradients = transfer.receive(id(kBackward, m));
          ASSERT_EQ(gradients.size(), 2u);
          EXPECT_TRUE(gradients[0].equal(tensors(m)[0] * 2));
          EXPECT_TRUE(gradients[1].equal(tensors(m)[2] * 2));
          transfer.release_sent();
        }
      } else {
        for (int m = 0; m < 3; ++m) {
          transfer.prefetch(id(kForward, m));
          const Tensors received = transfer.receive(id(kForward, m));
          ASSERT_EQ(received.size(), 4u);
          for (std::size_t i = 0; i < received.size(); ++i) {
            EXPECT_TRUE(received[i].equal(tensors(m)[i])) << i;
            EXPECT_EQ(received[i].requires_grad(), tensors(m)[i].requires_grad()) << i;
          }
          transfer.send(id(kBackward, m), {received[0].detach() * 2, received[2].detach() * 2});
        }
      }
      transfer.finish_step();
    }
  });
}

TEST(Transfer, AnotherShapeNeedsAnotherKey) {
  const std::string what = message_of<InternalError>([] {
    run_ranks(2, [](World& world) {
      Mesh mesh(Grid::dense({.pp = 2}), world);
      Transfer transfer(schedule::make_schedule("afab", 2, 2), mesh, at::kCPU);
      for (const bool with_keys : {true, false}) {
        transfer.begin_step([&](int m) { return with_keys ? m : 5; });
        for (int m = 0; m < 2; ++m) {
          const TransferId id{TransferId::What::activations, 0, m};
          if (mesh.rank() == 0) transfer.send(id, {at::zeros({m + 1})});
          if (mesh.rank() == 1) {
            EXPECT_EQ(transfer.receive(id)[0].numel(), m + 1);
          }
        }
        for (int m = 0; m < 2; ++m) {
          const TransferId id{TransferId::What::gradients, 0, m};
          if (mesh.rank() == 1) transfer.send(id, {});
          if (mesh.rank() == 0) {
            EXPECT_TRUE(transfer.receive(id).empty());
          }
        }
        transfer.finish_step();
      }
    });
  });
  EXPECT_THAT(what, testing::HasSubstr("activations of microbatch 1 between chunks 0 and 1 have other shapes"));
}

}  // namespace
}  // namespace trireme
