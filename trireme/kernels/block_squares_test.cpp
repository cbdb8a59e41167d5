#include "trireme/kernels/block_squares.hpp"

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
          add_block_squares(x, phase, out);
          at::Tensor padded = at::zeros({blocks * 1024}, out.options());
          padded.narrow(0, phase, n).copy_(x);
          const at::Tensor want = padded.view({blocks, 1024}).square().sum(1) + 1;
          EXPECT_LE(((out - want) / want).abs().max().item<double>(), 1e-13) << dtype << n << " " << phase;
        }
}

TEST(BlockSquares, InfinityAndNanStay) {
  for (const double bad : {HUGE_VAL, std::nan("")}) {
    at::Tensor x = test::normal({3000}, 3), out = at::zeros({3}, at::kDouble);
    x[1500] = bad;
    add_block_squares(x, 0, out);
    EXPECT_FALSE(std::isfinite(out[1].item<double>()));
    EXPECT_TRUE(std::isfinite(out[0].item<double>()) && std::isfinite(out[2].item<double>()));
  }
}

TEST(BlockSquares, SaysWhatIsWrong) {
  const at::Tensor out = at::zeros({1}, at::kDouble);
  EXPECT_THROW(add_block_squares(at::zeros({4}), 1024, out), InternalError);
  EXPECT_THROW(add_block_squares(at::zeros({2000}), 0, out), InternalError);
  EXPECT_THROW(add_block_squares(at::zeros({4}, at::kLong), 0, out), InternalError);
}

}  // namespace
}  // namespace trireme::kernels
