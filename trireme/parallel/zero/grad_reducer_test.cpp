#include "trireme/parallel/zero/grad_reducer.hpp"

#include <ATen/Context.h>
#include <torch/nn/modules/linear.h>

#include "trireme/nn/norm.hpp"
#include "trireme/testing/nn_helpers.hpp"
#include "trireme/testing/test_helpers.hpp"
#include "trireme/testing/zero_helpers.hpp"

namespace trireme {
namespace {

using test::kRows;
using test::rows;
using test::UnitNet;

/// Gradients of the whole batch on one rank.
std::map<std::string, at::Tensor> reference() {
  UnitNet net;
  net.loss(rows()).backward();
  std::map<std::string, at::Tensor> out;
  for (const auto& item : net.named_parameters())
    out[item.key()] = item.value().grad().defined() ? item.value().grad() : at::zeros_like(item.value());
  return out;
}

void expect_own_parts(const GradReducer& reducer, const std::map<std::string, at::Tensor>& expected,
                      const std::string& what) {
  const Partition& partition = reducer.partition();
  for (std::size_t b = 0; b < partition.num_buckets(); ++b)
    for (const FlatPiece& piece : partition.own_pieces(b)) {
      const std::string& name = partition.params()[piece.item].name;
      const at::Tensor want = expected.at(name).flatten().narrow(0, piece.of_item.begin, piece.of_item.size());
      const at::Tensor got = reducer.shard(b).narrow(0, piece.offset, piece.of_item.size());
      EXPECT_LE((got - want).abs().max().item<double>(), 1e-12) << name << " " << what;
    }
}

TEST(GradReducer, SumsAreThoseOfOneRank) {
  const auto expected = reference();
  struct Shape {
    int dp, replicate;
  };
  for (const Shape shape : {Shape{1, 1}, Shape{2, 1}, Shape{4, 1}, Shape{4, 2}})
    for (const int stage : {0, 1, 2, 3})
      for (const int way : {0, 1, 2, 3})  // overlap; no overlap; all-reduce of full buckets; non-contiguous gradients
        for (const int microbatches : {1, 3})
          for (const double bucket_mb : {0.0001, 0.012, 25.0})
            if (bucket_mb > 0.001 || way == 0)
              run_ranks(shape.dp, [&](World& world) {
                Mesh mesh(Grid::dense({.dp = shape.dp}), world);
                UnitNet net;
                const Partition partition(params_of(net), net.units(), mesh,
                                          {.stage = stage,
                                           .replicate = shape.replicate,
                                           .bucket_mb = bucket_mb,
                                           .overlap = way != 1,
                                           .reduce_scatter = way != 2,
                                           .contiguous_gradients = way != 3,
                                           .persistence_threshold = 50,
                                           .accumulate = at::kDouble});
                GradReducer reducer(partition);
                for (int step = 0; step < 2; ++step) {  // the second reuses the buffers of the first
                  const std::int64_t each = kRows / shape.dp / microbatches;
                  for (int m = 0; m < microbatches; ++m) {
                    reducer.begin_microbatch(m + 1 == microbatches);
                    net.loss(rows().narrow(0, (mesh.rank() * microbatches + m) * each, each)).backward();
                    reducer.end_microbatch();
                  }
                  reducer.finish();
                }
                expect_own_parts(reducer, expected,
                                 text("dp ", shape.dp, " x ", shape.replicate, " stage ", stage, " way ", way));
                const bool sent_early = reducer.sent_during_backward() > 0;
                EXPECT_TRUE(bucket_mb > 1 || stage == 3 || sent_early == (way != 3)) << stage << way;
                for (const Param& param : partition.params()) EXPECT_FALSE(param.value.grad().defined()) << param.name;
              });
}

/// One reduction of each bucket per step, or per microbatch in stages 2 and 3; a ring sends 2 (n - 1) / n of the bytes,
/// or half of that for a reduce-scatter.
/// A replayed backward writes to the same memory without calling a hook.
TEST(GradReducer, AReplayedBackwardCountsAsOneThatCalledHooks) {
  const auto expected = reference();
  for (const int dp : {1, 2})
    for (const int stage : {0, 1})
      run_ranks(dp, [&](World& world) {
        Mesh mesh(Grid::dense({.dp = dp}), world);
        UnitNet net;
        const Partition partition(params_of(net), net.units(), mesh,
                                  {.stage = stage, .bucket_mb = 0.0001, .accumulate = at::kDouble});
        GradReducer reducer(partition);
        reducer.hold_back();
        EXPECT_THROW(reducer.replayed(), InternalError) << "before it was recorded";
        const std::int64_t each = kRows / dp;
        const at::Tensor own = rows().narrow(0, mesh.rank() * each, each);
        std::vector<at::Tensor> written;
        for (const bool replays : {false, true, true}) {
          reducer.begin_microbatch(true);
          if (replays) {  // sums of the step before are in the memory: the graph overwrites them
            for (std::size_t b = 0; b < partition.num_buckets(); ++b) reducer.unreduced(b).copy_(written[b]);
            reducer.replayed();
          } else {
            net.loss(own).backward();
            for (std::size_t b = 0; b < partition.num_buckets(); ++b) written.push_back(reducer.unreduced(b).clone());
          }
          reducer.end_microbatch();
          EXPECT_EQ(reducer.sent_during_backward(), 0);
          reducer.finish();
          expect_own_parts(reducer, expected, text("dp ", dp, " stage ", stage, replays ? " replayed" : ""));
        }
      });
}

TEST(GradReducer, SendsEachBucketOnce) {
  for (const int stage : {0, 1, 2, 3})
    run_ranks(2, [&](World& world) {
      Mesh mesh(Grid::dense({.dp = 2}), world);
      UnitNet net;
      const Partition partition(
          params_of(net), net.units(), mesh,
          {.stage = stage, .bucket_mb = 0.012, .persistence_threshold = 0, .accumulate = at::kDouble});
      GradReducer reducer(partition);
      const Op op = stage > 0 ? Op::reduce_scatter : Op::all_reduce;
      const Traffic before = mesh.group(Axis::dp).traffic(op);
      for (int m = 0; m < 3; ++m) {
        reducer.begin_microbatch(m == 2);
        net.loss(rows()).backward();
        reducer.end_microbatch();
      }
      reducer.finish();
      const Traffic after = mesh.group(Axis::dp).traffic(op);
      const std::int64_t times = stage >= 2 ? 3 : 1;
      EXPECT_EQ(after.calls - before.calls, times * static_cast<std::int64_t>(partition.num_buckets()));
      EXPECT_EQ(after.bytes - before.bytes, times * partition.layout().numel * 8 * (stage > 0 ? 1 : 2) / 2);
    });
}

TEST(GradReducer, Bf16GradientsAreAddedUpInF32AndMayTravelAsBf16) {
  for (const int stage : {0, 1, 2})
    for (const at::ScalarType wire : {at::kFloat, at::kBFloat16})
      run_ranks(2, [&](World& world) {
        Mesh mesh(Grid::dense({.dp = 2}), world);
        torch::nn::Linear net(8, 8);
        net->to(at::kBFloat16);
        const Partition partition(params_of(*net), {}, mesh, {.stage = stage, .reduce = wire});
        GradReducer reducer(partition);
        for (int m = 0; m < 2; ++m) {
          reducer.begin_microbatch(m == 1);
          (net->weight * (m == 0 ? 256.0 : 1.0)).sum().backward();  // 257 has no exact bf16 value
          reducer.end_microbatch();
        }
        reducer.finish();
        // Stage 2 reduces each microbatch separately: 512 and 2 are exact in bf16.
        const double want = wire == at::kFloat || stage == 2 ? 514 : 512;
        for (const FlatPiece& piece : partition.own_pieces(0))
          if (partition.params()[piece.item].name == "weight") {
            const at::Tensor sum = reducer.shard(0).narrow(0, piece.offset, piece.of_item.size());
            EXPECT_TRUE(sum.eq(want).all().item<bool>()) << stage << sum;
          }
        EXPECT_EQ(reducer.shard(0).scalar_type(), at::kFloat);
      });
}

/// The weight of a norm with sequence parallelism: every rank of dp x tp has seen different tokens, and the gradient is
/// the sum over all ranks.
TEST(GradReducer, PartsOfASumOverTpAreAddedUpFirst) {
  const at::Tensor all = test::normal_numbers({8, 37}, 5);
  const auto loss = [](RmsNorm& norm, const at::Tensor& x) { return norm.forward(x).pow(3).sum(); };
  at::Tensor expected;
  on_tp(1, [&](Mesh& mesh) {
    RmsNorm norm(37, 1e-5, mesh);
    fill(norm, mesh);
    loss(norm, all).backward();
    expected = norm.weight_D.grad().clone();
  });
  for (const int stage : {0, 1, 2})
    run_ranks(4, [&](World& world) {
      Mesh mesh(Grid::dense({.dp = 2, .tp = 2}), world);
      const InitScope f64(at::kCPU, at::kDouble);
      RmsNorm norm(37, 1e-5, mesh, Axis::tp);
      fill(norm, mesh);
      const Partition partition(params_of(norm), {}, mesh, {.stage = stage, .accumulate = at::kDouble});
      GradReducer reducer(partition);
      for (int m = 0; m < 2; ++m) {  // two microbatches of one token
        reducer.begin_microbatch(m == 1);
        loss(norm, all.narrow(0, 2 * mesh.rank() + m, 1)).backward();
        reducer.end_microbatch();
      }
      reducer.finish();
      for (const FlatPiece& piece : partition.own_pieces(0)) {
        const at::Tensor want = expected.narrow(0, piece.of_item.begin, piece.of_item.size());
        const at::Tensor got = reducer.shard(0).narrow(0, piece.offset, piece.of_item.size());
        EXPECT_LE(relative(got, want), 1e-13) << "rank " << mesh.rank() << " stage " << stage;
      }
    });
}

/// Padding of a bucket is reduced and updated with it: garbage there could turn into NaN.
TEST(GradReducer, PaddingStaysZero) {
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/true);  // fills uninitialized memory with NaN
  ASSERT_TRUE(at::empty({1}).isnan().item<bool>());
  for (const int stage : {0, 1, 2, 3})
    run_ranks(2, [&](World& world) {
      Mesh mesh(Grid::dense({.dp = 2}), world);
      UnitNet net;
      const Partition partition(
          params_of(net), net.units(), mesh,
          {.stage = stage, .bucket_mb = 0.012, .persistence_threshold = 50, .accumulate = at::kDouble});
      GradReducer reducer(partition);
      reducer.begin_microbatch(true);
      net.loss(rows()).backward();
      reducer.end_microbatch();
      reducer.finish();
      std::int64_t padding = 0;
      for (std::size_t b = 0; b < partition.num_buckets(); ++b) {
        const at::Tensor rest = reducer.shard(b).clone();
        padding += rest.numel();
        for (const FlatPiece& piece : partition.own_pieces(b)) {
          rest.narrow(0, piece.offset, piece.of_item.size()).zero_();
          padding -= piece.of_item.size();
        }
        EXPECT_TRUE(rest.eq(0).all().item<bool>()) << "stage " << stage << " bucket " << b;
      }
      EXPECT_GT(padding, 0);
    });
  context.setDeterministicAlgorithms(false, false);
}

TEST(GradReducer, WrongOrderIsNamed) {
  run_ranks(1, [](World& world) {
    Mesh mesh(Grid::dense({}), world);
    UnitNet net;
    const Partition partition(params_of(net), {}, mesh, {.accumulate = at::kDouble});
    GradReducer reducer(partition);
    EXPECT_THROW(net.loss(rows()).backward(), InternalError);
    EXPECT_THROW(reducer.finish(), InternalError);
    reducer.begin_microbatch(false);
    EXPECT_THROW(reducer.begin_microbatch(true), InternalError);
    net.loss(rows()).backward();
    reducer.end_microbatch();
    EXPECT_THROW(reducer.end_microbatch(), InternalError);
    EXPECT_THROW(reducer.finish(), InternalError);  // the last microbatch is missing
  });
}

TEST(Partition, SaysWhatDoesNotFit) {
  run_ranks(4, [](World& world) {
    Mesh mesh(Grid::dense({.dp = 4}), world);
    UnitNet net;
    const auto fails = [&](const ZeroOptions& options, UnitPlan units, const std::string& words) {
      EXPECT_THAT(message_of<ConfigError>([&] { Partition(params_of(net), std::move(units), mesh, options); }),
                  testing::HasSubstr(words));
    };
    fails({.stage = 4, .accumulate = at::kDouble}, {}, "must be 0, 1, 2 or 3");
    fails({.stage = 3, .accumulate = at::kDouble}, {}, "which units");
    fails({.replicate = 3, .accumulate = at::kDouble}, {}, "does not divide dp x cp = 4");
    fails({.accumulate = at::kFloat}, {}, "to be accumulated in");
    UnitPlan plan = net.units();
    plan.units[1].params.pop_back();
    fails({.stage = 3, .accumulate = at::kDouble}, plan, "norm1 is in no unit");
  });
}

}  // namespace
}  // namespace trireme
