#include "trireme/zero/grad_reducer.hpp"

#include <torch/torch.h>

#include "trireme/base/philox.hpp"
#include "trireme/base/test_words.hpp"
#include "trireme/nn/norm.hpp"
#include "trireme/nn/test_words.hpp"

namespace trireme {
namespace {

/// A net with a tied weight and one that nothing uses, of sizes that fit no block.
struct Net : torch::nn::Module {
  torch::nn::Linear first{nullptr}, second{nullptr}, unused{nullptr};
  Net() {
    unused = register_module("unused", torch::nn::Linear(11, 3));  // first, so last in the buffer: nothing waits for it
    first = register_module("first", torch::nn::Linear(37, 37));
    second = register_module("second", torch::nn::Linear(37, 5));
    to(at::kDouble);
    const at::NoGradGuard quiet;
    std::uint64_t seed = 1;
    for (at::Tensor& p : parameters()) p.copy_(normal_numbers(p.sizes(), seed++) * 0.3);
  }
  at::Tensor loss(const at::Tensor& x) { return second(first(first(x).tanh()).tanh()).square().sum(); }

  static at::Tensor normal_numbers(at::IntArrayRef sizes, std::uint64_t seed) {
    const Stream stream(seed, "net");
    at::Tensor out = at::empty(sizes, at::kDouble);
    double* data = out.mutable_data_ptr<double>();
    for (std::int64_t i = 0; i < out.numel(); ++i) data[i] = stream.normal(static_cast<std::uint64_t>(i));
    return out;
  }
};

constexpr std::int64_t kRows = 24;
at::Tensor rows() { return Net::normal_numbers({kRows, 37}, 99); }

/// Gradients of the whole batch on one rank.
std::map<std::string, at::Tensor> reference() {
  Net net;
  net.loss(rows()).backward();
  std::map<std::string, at::Tensor> out;
  for (const auto& item : net.named_parameters())
    out[item.key()] = item.value().grad().defined() ? item.value().grad() : at::zeros_like(item.value());
  return out;
}

TEST(GradReducer, SumsAreThoseOfOneRank) {
  const auto expected = reference();
  for (const int dp : {1, 2, 4})
    for (const bool scatter : {false, true})
      for (const bool overlap : {false, true})
        for (const int microbatches : {1, 3})
          for (const double bucket_mb : {0.0001, 0.008, 25.0})
            run_ranks(dp, [&](World& world) {
              Mesh mesh(Grid::dense({.dp = dp}), world);
              Net net;
              GradReducer reducer(
                  params_of(net), mesh,
                  {.bucket_mb = bucket_mb, .accumulate = at::kDouble, .scatter = scatter, .overlap = overlap});
              for (int step = 0; step < 2; ++step) {  // the second starts where the first left the buffer
                const std::int64_t each = kRows / dp / microbatches;
                for (int m = 0; m < microbatches; ++m) {
                  reducer.begin_microbatch(m + 1 == microbatches);
                  net.loss(rows().narrow(0, (mesh.rank() * microbatches + m) * each, each)).backward();
                }
                reducer.finish();
              }
              for (std::size_t b = 0; b < reducer.layout().buckets.size(); ++b)
                for (const FlatPiece& piece : reducer.layout().pieces(b, mesh.rank())) {
                  const at::Tensor want = expected.at(reducer.params()[piece.item].name)
                                              .flatten()
                                              .narrow(0, piece.of_item.begin, piece.of_item.size());
                  const at::Tensor got = reducer.shard(b).narrow(0, piece.offset, piece.of_item.size());
                  EXPECT_LE((got - want).abs().max().item<double>(), 1e-12)
                      << reducer.params()[piece.item].name << " dp " << dp << " scatter " << scatter;
                }
              if (!scatter) {
                for (std::size_t i = 0; i < reducer.params().size(); ++i)
                  EXPECT_LE((reducer.gradient(i) - expected.at(reducer.params()[i].name)).abs().max().item<double>(),
                            1e-12);
              }
              const bool sent_early = reducer.sent_during_backward() > 0;
              EXPECT_TRUE(bucket_mb > 1 || sent_early == overlap);
              for (const Param& param : reducer.params()) EXPECT_FALSE(param.value.grad().defined()) << param.name;
            });
}

/// Each bucket once a step, however many microbatches; 2 (n - 1) / n of its bytes by a ring.
TEST(GradReducer, SendsEachBucketOnce) {
  for (const bool scatter : {false, true})
    run_ranks(2, [&](World& world) {
      Mesh mesh(Grid::dense({.dp = 2}), world);
      Net net;
      GradReducer reducer(params_of(net), mesh, {.bucket_mb = 0.008, .accumulate = at::kDouble, .scatter = scatter});
      const Op op = scatter ? Op::reduce_scatter : Op::all_reduce;
      const Traffic before = reducer.group().traffic(op);
      for (int m = 0; m < 3; ++m) {
        reducer.begin_microbatch(m == 2);
        net.loss(rows()).backward();
      }
      reducer.finish();
      const Traffic after = reducer.group().traffic(op);
      EXPECT_EQ(after.calls - before.calls, static_cast<std::int64_t>(reducer.layout().buckets.size()));
      EXPECT_EQ(after.bytes - before.bytes, reducer.layout().numel * 8 * (scatter ? 1 : 2) / 2);
    });
}

TEST(GradReducer, Bf16GradientsAreAddedUpInF32AndMayTravelAsBf16) {
  for (const at::ScalarType wire : {at::kFloat, at::kBFloat16})
    run_ranks(2, [&](World& world) {
      Mesh mesh(Grid::dense({.dp = 2}), world);
      torch::nn::Linear net(8, 8);
      net->to(at::kBFloat16);
      GradReducer reducer(params_of(*net), mesh, {.reduce = wire});
      for (int m = 0; m < 2; ++m) {
        reducer.begin_microbatch(m == 1);
        (net->weight * (m == 0 ? 256.0 : 1.0)).sum().backward();  // 257 is no number of bf16's
      }
      reducer.finish();
      const std::size_t item = reducer.params()[0].name == "weight" ? 0 : 1;
      EXPECT_TRUE(reducer.gradient(item).eq(wire == at::kFloat ? 514.0 : 512.0).all().item<bool>())
          << reducer.gradient(item);
      EXPECT_EQ(reducer.gradient(item).scalar_type(), at::kFloat);
      EXPECT_TRUE(reducer.gradient(1 - item).eq(0).all().item<bool>());  // the bias, which nothing used
    });
}

/// The weight of a norm in sequence parallel: every rank of dp x tp has seen other tokens, and its gradient is the sum of all.
TEST(GradReducer, PartsOfASumOverTpAreAddedUpFirst) {
  const at::Tensor all = Net::normal_numbers({8, 37}, 5);
  const auto loss = [](RmsNorm& norm, const at::Tensor& x) { return norm.forward(x).pow(3).sum(); };
  at::Tensor expected;
  on_tp(1, [&](Mesh& mesh) {
    RmsNorm norm(37, 1e-5, mesh.group(Axis::tp));
    fill(norm, mesh);
    loss(norm, all).backward();
    expected = norm.weight_D.grad().clone();
  });
  for (const bool scatter : {false, true})
    run_ranks(4, [&](World& world) {
      Mesh mesh(Grid::dense({.dp = 2, .tp = 2}), world);
      const InitScope f64 = init_on_device_and_dtype(at::kCPU, at::kDouble);
      RmsNorm norm(37, 1e-5, mesh.group(Axis::tp), Axis::tp);
      fill(norm, mesh);
      GradReducer reducer(params_of(norm), mesh, {.accumulate = at::kDouble, .scatter = scatter});
      for (int m = 0; m < 2; ++m) {  // two microbatches of one token
        reducer.begin_microbatch(m == 1);
        loss(norm, all.narrow(0, 2 * mesh.rank() + m, 1)).backward();
      }
      reducer.finish();
      EXPECT_EQ(reducer.sent_during_backward(), 0);
      for (const FlatPiece& piece : reducer.layout().pieces(0, mesh.coord(Axis::dp))) {
        const at::Tensor want = expected.narrow(0, piece.of_item.begin, piece.of_item.size());
        const at::Tensor got = reducer.shard(0).narrow(0, piece.offset, piece.of_item.size());
        EXPECT_LE(relative(got, want), 1e-13) << "rank " << mesh.rank() << " scatter " << scatter;
      }
    });
}

TEST(GradReducer, WrongOrderIsNamed) {
  run_ranks(1, [](World& world) {
    Mesh mesh(Grid::dense({}), world);
    Net net;
    GradReducer reducer(params_of(net), mesh, {.accumulate = at::kDouble});
    EXPECT_THROW(reducer.finish(), InternalError);
    EXPECT_THROW(net.loss(rows()).backward(), InternalError);
    EXPECT_THAT(message_of<ConfigError>([&] { GradReducer(params_of(net), mesh, {}); }),
                testing::HasSubstr("is to be accumulated in Float"));
  });
}

}  // namespace
}  // namespace trireme
