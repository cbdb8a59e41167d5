#include "trireme/kernels/optimizer/block_squares.hpp"

#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/kernels_helpers.hpp"

namespace trireme::kernels {
namespace {

TEST(BlockSquares, AreSumsOfSquares) {
  for (const at::Device device : test::devices())
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf})
      for (const std::int64_t n : {1, 7, 1023, 1024, 1025, 5000})
        for (const std::int64_t phase : {0, 1, 1000, 1023}) {
          const at::Tensor x = test::normal({n}, 3).to(device).to(dtype);
          const std::int64_t blocks = (phase + n + 1023) / 1024;
          at::Tensor out = at::ones({blocks}, x.options().dtype(at::kDouble));
          add_block_squares(std::vector<SquaresRun>{{x, phase, 0}}, out);
          at::Tensor padded = at::zeros({blocks * 1024}, out.options());
          padded.narrow(0, phase, n).copy_(x);
          const at::Tensor want = padded.view({blocks, 1024}).square().sum(1) + 1;
          EXPECT_LE(((out - want) / want).abs().max().item<double>(), 1e-13) << dtype << n << " " << phase;
        }
}

/// Runs of several tensors, more than one launch of a GPU takes, of two dtypes; some share a block.
TEST(BlockSquares, OfManyRuns) {
  for (const at::Device device : test::devices()) {
    std::vector<SquaresRun> runs;
    at::Tensor want = at::zeros({400}, at::kDouble);
    for (std::int64_t i = 0; i < 150; ++i) {
      const at::Tensor x =
          test::normal({1 + 37 * i % 2100}, static_cast<std::uint64_t>(i)).to(i % 40 < 30 ? at::kFloat : at::kBFloat16);
      const std::int64_t phase = 31 * i % 1024, block = (i % 7 == 3 ? 2 * i - 2 : 2 * i);
      runs.push_back({x.to(device), phase, block});
      at::Tensor padded = at::zeros({4 * 1024}, at::kDouble);
      padded.narrow(0, phase, x.numel()).copy_(x);
      want.narrow(0, block, 4) += padded.view({4, 1024}).square().sum(1);
    }
    const at::Tensor out = at::zeros({400}, want.options().device(device)), again = out.clone();
    add_block_squares(runs, out);
    EXPECT_LE((out.cpu() - want).abs().max().item<double>(), 1e-9) << device;
    add_block_squares(runs, again);
    EXPECT_TRUE(at::equal(out, again)) << device;
  }
}

TEST(BlockSquares, InfinityAndNanStay) {
  for (const at::Device device : test::devices())
    for (const double bad : {HUGE_VAL, std::nan("")}) {
      at::Tensor x = test::normal({3000}, 3), out = at::zeros({3}, at::TensorOptions(at::kDouble).device(device));
      x[1500] = bad;
      add_block_squares(std::vector<SquaresRun>{{x.to(device), 0, 0}}, out);
      EXPECT_FALSE(std::isfinite(out[1].item<double>()));
      EXPECT_TRUE(std::isfinite(out[0].item<double>()) && std::isfinite(out[2].item<double>()));
    }
}

TEST(BlockSquares, SaysWhatIsWrong) {
  const at::Tensor out = at::zeros({1}, at::kDouble);
  const auto add = [&](const at::Tensor& x, std::int64_t phase, std::int64_t block) {
    add_block_squares(std::vector<SquaresRun>{{x, phase, block}}, out);
  };
  EXPECT_THROW(add(at::zeros({4}), 1024, 0), InternalError);
  EXPECT_THROW(add(at::zeros({2000}), 0, 0), InternalError);
  EXPECT_THROW(add(at::zeros({4}), 0, 1), InternalError);
  EXPECT_THROW(add(at::zeros({4}, at::kLong), 0, 0), InternalError);
}

}  // namespace
}  // namespace trireme::kernels
