#include "trireme/kernels/matmul/matmul.hpp"

#include <array>

#include "trireme/testing/kernels_helpers.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::kernels {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::array kDtypes{at::kDouble, at::kFloat, at::kBFloat16, at::kHalf};

/// Tolerance relative to the largest number. bf16 and f16 are rounded once.
double matmul_bound(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble: return 1e-13;
    case at::kFloat: return 1e-5;
    case at::kBFloat16: return 0x1.1p-8;
    default: return 0x1.1p-11;
  }
}

TEST(Matmul, EqualsTheProductInF64) {
  for (const at::Device device : test::devices())
    for (const at::ScalarType dtype : kDtypes)
      for (const auto [m, n, k] :
           {std::array{1, 1, 1}, {7, 37, 96}, {257, 7, 37}, {3, 5, 0}, {0, 5, 3}, {1030, 8, 4}, {8, 4, 2100}}) {
        SCOPED_TRACE(text(dtype, " on ", device, " m ", m, " n ", n, " k ", k));
        const at::Tensor a = test::normal({m, k}, 1).to(device, dtype), b = test::normal({k, n}, 2).to(device, dtype);
        const at::Tensor truth = at::mm(a.to(at::kCPU, at::kDouble), b.to(at::kCPU, at::kDouble));
        const at::Tensor at_ = a.t().contiguous(), bt = b.t().contiguous();
        for (const at::Tensor& out :
             {matmul_nn(a, b), matmul_nt(a, bt), matmul_tn(at_, b), matmul_nn(at_.t(), bt.t())}) {
          EXPECT_EQ(out.scalar_type(), dtype);
          ASSERT_EQ(out.sizes(), truth.sizes());
          EXPECT_LE(test::difference(out, truth), matmul_bound(dtype));
        }
        const at::Tensor before = test::normal({m, n}, 3).to(device, dtype), sum = before.clone();
        add_matmul_tn_(sum, at_, b);
        EXPECT_LE(test::difference(sum, before.to(at::kCPU, at::kDouble) + truth), matmul_bound(dtype));
        const at::Tensor out = at::full_like(before, NAN);
        matmul_tn_out(out, at_, b);
        EXPECT_LE(test::difference(out, truth), matmul_bound(dtype));
      }
}

TEST(Matmul, AddsIntoFp32WithoutRounding) {
  for (const at::Device device : test::devices())
    for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
      const at::Tensor a = test::normal({1100, 9}, 1).to(device, dtype),
                       b = test::normal({1100, 5}, 2).to(device, dtype);
      const at::Tensor before = test::normal({9, 5}, 3).to(device, at::kFloat), sum = before.clone();
      add_matmul_tn_(sum, a, b);
      const at::Tensor truth =
          before.to(at::kCPU, at::kDouble) + at::mm(a.to(at::kCPU, at::kDouble).t(), b.to(at::kCPU, at::kDouble));
      EXPECT_LE(test::difference(sum, truth), 1e-5) << dtype << " on " << device;
      const at::Tensor out = at::full_like(before, NAN);
      matmul_tn_out(out, a, b);
      EXPECT_LE(test::difference(out, truth - before.to(at::kCPU, at::kDouble)), 1e-5) << dtype << " on " << device;
    }
}

TEST(Matmul, RoundsIntoANarrowerDtype) {
  const at::Tensor a = test::normal({40, 9}, 1).to(at::kFloat), b = test::normal({40, 5}, 2).to(at::kFloat);
  const at::Tensor truth = at::mm(a.to(at::kDouble).t(), b.to(at::kDouble)), out = at::full({9, 5}, NAN, at::kBFloat16);
  matmul_tn_out(out, a, b);
  EXPECT_LE(test::difference(out, truth), matmul_bound(at::kBFloat16));
  add_matmul_tn_(out, a, b);
  EXPECT_LE(test::difference(out, 2 * truth), matmul_bound(at::kBFloat16));
}

TEST(Matmul, SaysWhatIsWrong) {
  const at::Tensor a = at::ones({2, 3}), b = at::ones({4, 5});
  EXPECT_THAT(message_of<InternalError>([&] { matmul_nt(a, b); }),
              HasSubstr("matmul_nt of sizes [2, 3] and [4, 5]: must be matrices, dim 1 of the first as long as dim 1"));
  EXPECT_THAT(message_of<InternalError>([&] { matmul_nn(a, at::ones({3, 4}, at::kDouble)); }), HasSubstr("one dtype"));
  EXPECT_THAT(message_of<InternalError>([&] { add_matmul_tn_(at::ones({3, 4}), a, at::ones({2, 5})); }),
              HasSubstr("out of sizes [3, 4], Float on cpu: must be of sizes [3, 5]"));
  EXPECT_THAT(message_of<InternalError>([&] { kernels::linear(a, at::ones({4, 3}), at::ones({3})); }),
              HasSubstr("bias of sizes [3], Float on cpu: must be of sizes [4]"));
}

TEST(Matmul, KnowsWhatIsNative) {
  EXPECT_TRUE(multiplies_natively(at::kFloat, at::kCPU));
  EXPECT_TRUE(multiplies_natively(at::kDouble, at::kCPU));
  EXPECT_TRUE(multiplies_natively(at::kBFloat16, at::kCUDA));
}

test::Subject linear_subject(std::int64_t T, std::int64_t K, std::int64_t N, bool with_bias) {
  test::Tensors inputs{test::normal({T, K}, 1), test::normal({N, K}, 2)};
  if (with_bias) inputs.push_back(test::normal({N}, 3));
  return {text("linear [", T, ", ", K, "] to ", N, with_bias ? " with bias" : ""),
          [=](const test::Tensors& in) { return kernels::linear(in[0], in[1], with_bias ? in[2] : at::Tensor()); },
          [=](const test::Tensors& in) {
            const at::Tensor y = at::mm(in[0], in[1].t());
            return with_bias ? y + in[2] : y;
          },
          std::move(inputs)};
}

/// Whether the BLAS of this machine has the same bits with any number of threads, in the products of such a layer and
/// of its gradients. Where it has, so must the layer.
test::WithThreads blas_with_threads(std::int64_t T, std::int64_t K, std::int64_t N) {
  const at::Tensor x = test::normal({T, K}, 1).to(at::kFloat), weight = test::normal({N, K}, 2).to(at::kFloat),
                   dy = test::normal({T, N}, 3).to(at::kFloat);
  const auto products = [&](int threads) {
    at::set_num_threads(threads);
    return std::vector{at::mm(x, weight.t()), at::mm(dy, weight), at::mm(dy.t(), x), at::mm(x.t(), dy)};
  };
  const int before = at::get_num_threads();
  const std::vector<at::Tensor> one = products(1);
  bool same = true;
  for (const int threads : {2, 3}) {
    const std::vector<at::Tensor> more = products(threads);
    for (std::size_t i = 0; i < one.size(); ++i) same = same && one[i].equal(more[i]);
  }
  at::set_num_threads(before);
  return same ? test::WithThreads::same_bits : test::WithThreads::rounding;
}

TEST(Linear, EqualsThePlainFormula) {
  for (const bool with_bias : {false, true}) {
    for (const auto& [T, K, N] : {std::array{5, 1, 96}, {5, 7, 96}, {5, 37, 96}, {131, 96, 257}})
      test::expect_all(linear_subject(T, K, N, with_bias), blas_with_threads(T, K, N));
    test::expect_equals_plain(linear_subject(0, 7, 3, with_bias));
  }
}

TEST(Linear, KeepsItsInputs) {
  EXPECT_THAT(test::inputs_kept(linear_subject(4, 8, 6, true)), ElementsAre(true, true, true));
}

TEST(Linear, ComputesOnlyWhatIsNeeded) {
  const at::Tensor x = at::ones({2, 3}), weight = at::ones({4, 3}).requires_grad_();
  kernels::linear(x, weight).sum().backward();
  EXPECT_TRUE(at::equal(weight.grad(), at::full({4, 3}, 2.F)));
  EXPECT_FALSE(x.grad().defined());
  const at::Tensor leaf = at::ones({2, 3}).requires_grad_(), fixed = at::ones({4, 3});
  kernels::linear(leaf, fixed).sum().backward();
  EXPECT_TRUE(at::equal(leaf.grad(), at::full({2, 3}, 4.F)));
}

}  // namespace
}  // namespace trireme::kernels
