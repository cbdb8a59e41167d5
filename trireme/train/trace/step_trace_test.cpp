#include "trireme/train/trace/step_trace.hpp"

#include <filesystem>

#include <gtest/gtest.h>

#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/schedule/generate.hpp"
#include "trireme/testing/temp_folder.hpp"
#include "trireme/testing/zero_helpers.hpp"

namespace trireme {
namespace {

/// One collective per bucket, in the last backward, and the first of them starts before that backward ends.
TEST(StepTrace, BucketsTravelUnderBackward) {
  const TempFolder folder;
  for (const int stage : {0, 1})
    run_ranks(2, [&](World& world) {
      Mesh mesh(Grid::dense({.dp = 2}), world);
      test::UnitNet net(6);
      Zero zero(params_of(net), net.units(), mesh,
                {.stage = stage, .bucket_mb = 0.012, .accumulate = at::kDouble, .reduce = at::kDouble},
                {.optimizer = {}, .master = at::kDouble, .states = at::kDouble});
      net.units(&zero.chunk());
      Executor executor(schedule::make_schedule("1f1b", 1, 2), zero, mesh);
      world.recorder().keep_waits();
      const StepOutcome outcome = executor.run({.step = 3,
                                                .forward = whole_model([&](int) { return net.loss(test::rows()); }),
                                                .loss_gradient = [] { return at::scalar_tensor(1.0, at::kDouble); }});
      zero.finish_gradients();
      TracedStep traced{
          .step = 3, .spans = outcome.spans, .update_ns = steady_ns(), .calls = world.recorder().step_calls()};
      traced.waits = world.recorder().take_waits();
      EXPECT_FALSE(traced.waits.empty());
      for (const WaitSpan& wait : traced.waits) EXPECT_GE(wait.end_ns, wait.begin_ns);
      // Both seconds and spans leave out what an action waited inside.
      double with_waits = 0, waited = 0;
      for (const ActionSpan& span : outcome.spans) {
        with_waits += static_cast<double>(span.end_ns - span.begin_ns) * 1e-9;
        waited += static_cast<double>(span.waited_ns) * 1e-9;
      }
      EXPECT_NEAR(outcome.seconds({schedule::ActionKind::F, schedule::ActionKind::B}), with_waits - waited, 1e-9);
      std::vector<CallRecord> sums;
      for (const CallRecord& call : traced.calls)
        if (call.op == (stage == 0 ? Op::all_reduce : Op::reduce_scatter)) sums.push_back(call);
      ASSERT_EQ(sums.size(), zero.partition().num_buckets());
      ASSERT_GT(sums.size(), 3u);
      const ActionSpan& last = outcome.spans.back();
      EXPECT_EQ(span_name(last.action), "backward microbatch 1");
      for (const CallRecord& call : sums) EXPECT_GT(call.started_ns, last.begin_ns) << "not in an earlier microbatch";
      EXPECT_LT(sums.front().started_ns, last.end_ns);
      // Every span has a length, and some of it lies under backward: what the figures of overlap are made of.
      std::int64_t hidden_ns = 0;
      for (const CallRecord& call : sums) {
        EXPECT_GT(call.finished_ns, call.started_ns);
        hidden_ns += std::max<std::int64_t>(0, std::min(call.finished_ns, last.end_ns) - call.started_ns);
      }
      EXPECT_GT(hidden_ns, 0);
      zero.update({.lr = 1e-3}).settle();
      zero.finish_gathers();
      traced.end_ns = steady_ns();
      write_step_trace(folder.path(), traced, world, "threads");
      EXPECT_GT(std::filesystem::file_size(folder.path() / "step3" / text("rank", world.rank(), ".json.gz")), 100u);
    });
}

}  // namespace
}  // namespace trireme
