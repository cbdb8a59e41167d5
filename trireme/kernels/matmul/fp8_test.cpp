#include "trireme/kernels/matmul/fp8.hpp"

#include <cmath>
#include <limits>

#include "trireme/kernels/matmul/fp8_cuda.hpp"
#include "trireme/testing/kernels_helpers.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::kernels {
namespace {

std::vector<at::Device> fp8_devices() {
  std::vector<at::Device> all{at::kCPU};
  if (at::hasCUDA()) all.emplace_back(at::kCUDA);
  return all;
}

double largest_difference(const at::Tensor& found, const at::Tensor& wanted) {
  return (found.to(at::kDouble).cpu() - wanted).abs().max().item<double>();
}

TEST(Fp8Scale, IsTheLargestPowerOfTwoThatFits) {
  for (const at::Device device : fp8_devices())
    for (const Fp8 format : {Fp8::e4m3, Fp8::e5m2})
      for (const double largest : {1.0, 447.9, 448.0, 449.0, 1e-6, 3e4, 57'344.0, 0x1p-100, 0x1p-140}) {
        const at::Tensor x = at::zeros({16, 16}, at::TensorOptions(at::kFloat).device(device));
        x[3][5] = -largest;
        const at::Tensor scale = fp8_scale(x, format).cpu();
        const double factor = scale[0][0].item<double>(), most = largest_of_format(format);
        EXPECT_EQ(factor, std::exp2(std::round(std::log2(factor))));
        EXPECT_LE(factor * static_cast<float>(largest), most) << largest << " on " << device;
        EXPECT_TRUE(2 * factor * static_cast<float>(largest) > most || factor == 0x1p126)
            << largest << " on " << device;
        EXPECT_EQ(scale[1][0].item<double>() * factor, 1);
      }
}

TEST(Fp8Scale, OfZerosIsOne) {
  for (const at::Device device : fp8_devices())
    EXPECT_EQ(
        fp8_scale(at::zeros({16, 16}, at::TensorOptions(at::kBFloat16).device(device)), Fp8::e4m3)[0][0].item<double>(),
        1);
}

TEST(Fp8Scale, IgnoresWhatIsNotFinite) {
  for (const at::Device device : fp8_devices()) {
    const at::Tensor x = at::ones({16, 16}, at::TensorOptions(at::kFloat).device(device));
    x[0][0] = std::numeric_limits<float>::infinity();
    x[0][1] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(fp8_scale(x, Fp8::e4m3)[0][0].item<double>(), 256);
  }
}

TEST(Fp8Matrix, IsRoundedAndTransposed) {
  for (const at::Device device : fp8_devices())
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf})
      for (const Fp8 format : {Fp8::e4m3, Fp8::e5m2})
        for (const auto& [m, n] : {std::pair(16, 16), std::pair(48, 80), std::pair(64, 64), std::pair(208, 1040)}) {
          const at::Tensor x = test::normal({m, n}, 1).to(dtype).to(device);
          const Fp8Matrix both = to_fp8(x, format, Fp8Layout::both);
          const std::string what = text(m, " x ", n, " ", dtype, " on ", device);
          const at::Tensor back = both.rows.to(at::kFloat) * both.scale[1][0];
          const double step = format == Fp8::e4m3 ? 0x1p-4 : 0x1p-3;  // half of the last bit, relative
          const at::Tensor wide = x.to(at::kFloat);
          // Small numbers lose bits: the smallest step is that of the largest number over 2^(range of exponents).
          const double least = wide.abs().max().item<double>() * (format == Fp8::e4m3 ? 0x1p-17 : 0x1p-31);
          EXPECT_TRUE(((back - wide).abs() <= wide.abs() * step + least).all().item<bool>()) << what;
          EXPECT_TRUE(both.columns.to(at::kFloat).equal(both.rows.to(at::kFloat).t())) << what;
          EXPECT_FALSE(to_fp8(x, format, Fp8Layout::rows).columns.defined());
          EXPECT_FALSE(to_fp8(x, format, Fp8Layout::columns).rows.defined());
          if (!device.is_cpu()) {
            const Fp8Matrix on_cpu = to_fp8(x.cpu(), format, Fp8Layout::rows);
            EXPECT_TRUE(on_cpu.rows.to(at::kFloat).equal(both.rows.cpu().to(at::kFloat))) << what;
          }
        }
}

TEST(Fp8Matrix, HasAScalePerRow) {
  for (const at::Device device : fp8_devices())
    for (const auto& [m, n] : {std::pair(16, 16), std::pair(48, 80), std::pair(208, 1040)}) {
      // Rows and columns of very different sizes.
      const at::Tensor sizes = (at::arange(m) % 7 - 3).to(at::kFloat).mul(5).exp2().unsqueeze(1) *
                               (at::arange(n) % 5 - 2).to(at::kFloat).mul(5).exp2().unsqueeze(0);
      const at::Tensor x = (test::normal({m, n}, 1).to(at::kFloat) * sizes).to(at::kBFloat16).to(device);
      const Fp8Matrix both = to_fp8(x, Fp8::e4m3, Fp8Layout::both, {.scaling = Fp8Scaling::row});
      const at::Tensor wide = x.to(at::kFloat);
      const std::string what = text(m, " x ", n, " on ", device);
      const auto check = [&](const at::Tensor& rounded, const at::Tensor& scale, const at::Tensor& exact) {
        ASSERT_EQ(scale.sizes(), at::IntArrayRef({2, exact.size(0)})) << what;
        const at::Tensor back = rounded.to(at::kFloat) * scale[1].unsqueeze(1), most = exact.abs().amax(1, true);
        EXPECT_TRUE(((back - exact).abs() <= exact.abs() * 0x1p-4 + most * 0x1p-17).all().item<bool>()) << what;
      };
      check(both.rows, both.scale, wide);
      check(both.columns, both.column_scale, wide.t());
    }
}

TEST(Fp8Matrix, RecordsTheLargestElement) {
  for (const at::Device device : fp8_devices())
    for (const Fp8Layout layout : {Fp8Layout::rows, Fp8Layout::columns, Fp8Layout::both}) {
      const at::Tensor largest = at::zeros({1}, at::TensorOptions(at::kFloat).device(device));
      const at::Tensor x = test::normal({80, 112}, 1).to(at::kBFloat16).to(device);
      x[70][100] = -37;
      x[1][1] = std::numeric_limits<float>::infinity();
      to_fp8(x, Fp8::e4m3, layout, {.largest = largest});
      EXPECT_EQ(largest.item<float>(), 37);
      to_fp8(x / 2, Fp8::e4m3, layout, {.largest = largest});
      EXPECT_EQ(largest.item<float>(), 37) << "of all that it has seen";
    }
}

TEST(Fp8Matrix, SaturatesAndKeepsNan) {
  for (const at::Device device : fp8_devices()) {
    const at::Tensor x = at::zeros({16, 16}, at::TensorOptions(at::kFloat).device(device));
    x[0][0] = 1e9;
    x[0][1] = std::numeric_limits<float>::quiet_NaN();
    x[0][2] = -std::numeric_limits<float>::infinity();
    const Fp8Matrix rounded = to_fp8(x, Fp8::e4m3, Fp8Layout::rows, {.scale = at::ones({2, 4}, x.options())});
    EXPECT_EQ(rounded.rows[0][0].to(at::kFloat).item<float>(), 448);
    EXPECT_TRUE(std::isnan(rounded.rows[0][1].to(at::kFloat).item<float>()));
    EXPECT_TRUE(std::isnan(rounded.rows[0][2].to(at::kFloat).item<float>())) << "what overflowed is noticed";
  }
}

/// Of operands that fp8 represents, the product is exact but for the rounding of sums.
TEST(Fp8Product, EqualsThatOfTheRoundedMatrices) {
  for (const at::Device device : fp8_devices()) {
    if (!why_no_fp8(device).empty() && device.is_cuda()) continue;
    for (const auto& [m, n, k] : {std::tuple(16, 16, 16), std::tuple(48, 80, 112), std::tuple(256, 512, 1024)})
      for (const Fp8 first : {Fp8::e4m3, Fp8::e5m2}) {
        const auto random = [&](int rows, int columns, int seed) {
          return test::normal({rows, columns}, seed).to(at::kBFloat16).to(device);
        };
        const Fp8Matrix a = to_fp8(random(m, k, 1), first, Fp8Layout::rows),
                        b = to_fp8(random(n, k, 2), Fp8::e4m3, Fp8Layout::rows);
        const at::Tensor bias = random(1, n, 3)[0];
        const auto wide = [](const Fp8Matrix& x) {
          return (x.rows.to(at::kFloat) * x.scale[1][0]).to(at::kDouble).cpu();
        };
        const at::Tensor product = wide(a).mm(wide(b).t());
        const auto error = [unit = product.abs().max().item<double>()](const at::Tensor& found,
                                                                       const at::Tensor& wanted) {
          return largest_difference(found, wanted) / unit;
        };
        const std::string what = text(m, " x ", n, " x ", k, " on ", device);
        EXPECT_LE(error(fp8_matmul_nt(a.rows, a.scale, b.rows, b.scale, at::kBFloat16, bias, true),
                        product + bias.to(at::kDouble).cpu()),
                  0x1p-7)
            << what;
        const at::Tensor sum = at::ones({m, n}, at::TensorOptions(at::kFloat).device(device));
        fp8_matmul_nt_out(sum, a.rows, a.scale, b.rows, b.scale, true);
        // The tensor cores of Hopper keep 14 bits of sums of fp8.
        const double bound = device.is_cuda() ? 1e-3 : 1e-5;
        EXPECT_LE(error(sum, product + 1), bound) << what;
        fp8_matmul_nt_out(sum, a.rows, a.scale, b.rows, b.scale, false);
        EXPECT_LE(error(sum, product), bound) << what;
      }
  }
}

TEST(Fp8Product, OfRowsWithScalesOfTheirOwn) {
  for (const at::Device device : fp8_devices()) {
    if (!why_no_fp8(device).empty() && device.is_cuda()) continue;
    for (const Fp8 first : {Fp8::e4m3, Fp8::e5m2}) {
      const std::int64_t m = 48, n = 80, k = 112;
      const at::Tensor a = test::normal({m, k}, 1).to(at::kBFloat16).to(device);
      const at::Tensor b = test::normal({n, k}, 2).to(at::kBFloat16).to(device);
      const at::Tensor bias = test::normal({n}, 3).to(at::kBFloat16).to(device);
      const Fp8Options rows{.scaling = Fp8Scaling::row};
      const Fp8Matrix a8 = to_fp8(a, first, Fp8Layout::rows, rows), b8 = to_fp8(b, Fp8::e4m3, Fp8Layout::rows, rows);
      const auto wide = [](const Fp8Matrix& x) {
        return (x.rows.to(at::kFloat) * x.scale[1].unsqueeze(1)).to(at::kDouble).cpu();
      };
      const at::Tensor product = wide(a8).mm(wide(b8).t());
      const auto error = [unit = product.abs().max().item<double>()](const at::Tensor& found,
                                                                     const at::Tensor& wanted) {
        return largest_difference(found, wanted) / unit;
      };
      for (const bool fast : {false, true})
        EXPECT_LE(error(fp8_matmul_nt(a8.rows, a8.scale, b8.rows, b8.scale, at::kBFloat16, bias, fast),
                        product + bias.to(at::kDouble).cpu()),
                  0x1p-7)
            << device;
      const at::Tensor sum = at::ones({m, n}, at::TensorOptions(at::kFloat).device(device));
      fp8_matmul_nt_out(sum, a8.rows, a8.scale, b8.rows, b8.scale, true);
      EXPECT_LE(error(sum, product + 1), 0x1p-7) << device;
    }
  }
}

TEST(Fp8Product, RefusesOddSizes) {
  EXPECT_THROW(to_fp8(at::zeros({16, 17}), Fp8::e4m3, Fp8Layout::rows), InternalError);
  const Fp8Matrix a = to_fp8(at::zeros({16, 16}), Fp8::e4m3, Fp8Layout::rows),
                  b = to_fp8(at::zeros({16, 32}), Fp8::e4m3, Fp8Layout::rows);
  EXPECT_THROW(fp8_matmul_nt(a.rows, a.scale, b.rows, b.scale, at::kFloat, {}, true), InternalError);
  EXPECT_NE(why_no_fp8(at::kCPU), "");
}

}  // namespace
}  // namespace trireme::kernels
