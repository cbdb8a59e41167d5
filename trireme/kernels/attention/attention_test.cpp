#include "trireme/kernels/attention/attention.hpp"

#include "trireme/kernels/attention/attention_block.hpp"
#include "trireme/kernels/matmul/matmul.hpp"
#include "trireme/testing/kernels_helpers.hpp"

namespace trireme::kernels {
namespace {

/// Reference: the formula, with materialized probabilities.
at::Tensor plain_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& sees) {
  const std::int64_t repeats = q.size(1) / k.size(1), s = q.size(2);
  const at::Tensor mask = sees.defined() ? sees : at::ones({s, s}, q.options().dtype(at::kBool)).tril();
  const at::Tensor scores = at::matmul(q, k.repeat_interleave(repeats, 1).transpose(2, 3)) / std::sqrt(q.size(3));
  return at::matmul(scores.masked_fill(mask.logical_not(), -INFINITY).softmax(-1), v.repeat_interleave(repeats, 1));
}

TEST(Attention, CapsScores) {
  constexpr double kCap = 0.7;
  for (const at::Device device : test::devices())
    for (const bool windowed : {false, true})
      for (const auto& [dtype, bound] : std::vector<std::pair<at::ScalarType, double>>{
               {at::kDouble, 1e-13}, {at::kFloat, 1e-5}, {at::kBFloat16, 0x1p-6}}) {
        const std::int64_t s = 19;
        const at::Tensor all = (2 * test::normal({2, s, 8, 8}, 1)).to(dtype).to(device);
        const at::Tensor causal = at::ones({s, s}, at::TensorOptions(device).dtype(at::kBool)).tril();
        const at::Tensor seen = windowed ? causal.triu(-4) : causal;
        const auto plain = [&](const test::Tensors& in) {
          const at::Tensor heads = in[0].transpose(1, 2);
          const at::Tensor k = heads.narrow(1, 4, 2).repeat_interleave(2, 1),
                           v = heads.narrow(1, 6, 2).repeat_interleave(2, 1);
          const at::Tensor scores =
              kCap * (at::matmul(heads.narrow(1, 0, 4), k.transpose(2, 3)) / std::sqrt(8.0) / kCap).tanh();
          return at::matmul(scores.masked_fill(seen.logical_not(), -INFINITY).softmax(-1), v).transpose(1, 2);
        };
        const auto dy = [](const at::Tensor& y) { return test::normal(y.sizes(), 2).to(y.options()); };
        const auto ours = test::run(
            [&](const test::Tensors& in) { return packed_attention(in[0], 4, windowed ? seen : at::Tensor(), kCap); },
            {all}, dy);
        const auto truth = test::run(plain, {all.to(at::kDouble)}, dy);
        EXPECT_LT(test::difference(ours.y.to(at::kDouble).cpu(), truth.y.cpu()), bound)
            << dtype << " window " << windowed;
        EXPECT_LT(test::difference(ours.grads[0].to(at::kDouble).cpu(), truth.grads[0].cpu()), bound)
            << dtype << " window " << windowed;
        const at::NoGradGuard off;
        const at::Tensor heads = all.transpose(1, 2);
        const at::Tensor last = next_token_attention(heads.narrow(1, 0, 4).narrow(2, s - 1, 1), heads.narrow(1, 4, 2),
                                                     heads.narrow(1, 6, 2), seen.narrow(0, s - 1, 1), kCap);
        EXPECT_LT(test::difference(last.squeeze(2).to(at::kDouble).cpu(), truth.y.select(1, s - 1).cpu()), bound)
            << dtype;
      }
}

TEST(Attention, EqualsTheFormulaForEveryDtypeWindowAndNumberOfKvHeads) {
  for (const at::Device device : test::devices())
    for (const std::int64_t kv : {4, 2, 1})
      for (const bool windowed : {false, true})
        for (const auto& [dtype, bound] : std::vector<std::pair<at::ScalarType, double>>{
                 {at::kDouble, 1e-13}, {at::kFloat, 1e-5}, {at::kBFloat16, 0x1p-6}, {at::kHalf, 0x1p-9}}) {
          // q, k and v as views of one tensor, as a layer has them.
          const std::int64_t s = 19;
          const at::Tensor all = test::normal({2, s, 4 + 2 * kv, 8}, 1).to(dtype).to(device);
          at::Tensor sees;
          if (windowed) sees = at::ones({s, s}, at::TensorOptions(device).dtype(at::kBool)).tril().triu(-4);
          const auto with = [&](const auto& form) {
            return [&, form](const test::Tensors& in) {
              const at::Tensor heads = in[0].transpose(1, 2);
              return form(heads.narrow(1, 0, 4), heads.narrow(1, 4, kv), heads.narrow(1, 4 + kv, kv), sees);
            };
          };
          const auto ours_of = [](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const at::Tensor& mask) { return attention(q, k, v, mask); };
          const auto dy = [](const at::Tensor& y) { return test::normal(y.sizes(), 2).to(y.options()); };
          const auto ours = test::run(with(ours_of), {all}, dy);
          const auto packed = test::run(
              [&](const test::Tensors& in) { return packed_attention(in[0], 4, sees).transpose(1, 2); }, {all}, dy);
          const auto truth = test::run(with(plain_attention), {all.to(at::kDouble)}, dy);
          const auto error = [](const at::Tensor& a, const at::Tensor& b) {
            return ((a.to(at::kDouble) - b).norm() / b.norm()).item<double>();
          };
          EXPECT_LT(error(ours.y, truth.y), bound) << dtype << " kv " << kv << " window " << windowed;
          EXPECT_LT(error(ours.grads[0], truth.grads[0]), bound) << dtype << " kv " << kv << " window " << windowed;
          EXPECT_LT(error(packed.y, truth.y), bound) << dtype << " kv " << kv << " window " << windowed;
          EXPECT_LT(error(packed.grads[0], truth.grads[0]), bound) << dtype << " kv " << kv << " window " << windowed;
          EXPECT_EQ(ours.y.scalar_type(), dtype);
          EXPECT_TRUE(!device.is_cpu() || ours.y.transpose(1, 2).is_contiguous());
          const at::NoGradGuard off;
          EXPECT_TRUE(with(ours_of)({all}).equal(ours.y));
        }
  EXPECT_ANY_THROW(attention(at::zeros({1, 3, 4, 8}), at::zeros({1, 2, 4, 8}), at::zeros({1, 2, 4, 8})));
}

/// Many queries and keys: on a GPU without a fused kernel (f64, or a mask) scores are computed in tiles of queries.
/// The last query of each sample sees no key.
TEST(AttentionBlock, EqualsTheFormulaInTiles) {
  const std::int64_t heads = 8, queries = 1500, d = 4;
  for (const at::Device device : test::devices())
    for (const bool causal : {false, true}) {
      const std::int64_t keys = causal ? queries : device.is_cpu() ? 700 : 8192;
      const auto random = [&](std::int64_t h, std::int64_t s, int key) {
        return test::normal({1, h, s, d}, key).to(device);
      };
      const at::Tensor q = random(heads, queries, 1), k = random(2, keys, 2), v = random(2, keys, 3);
      const at::Tensor dout = random(heads, queries, 4);
      at::Tensor sees = at::ones({queries, keys}, at::TensorOptions(device).dtype(at::kBool));
      sees = causal ? sees.tril() : sees.tril(keys - queries / 2).triu(-600);
      BlockScores mask{.causal = causal};
      if (!causal) {
        sees[queries - 1].fill_(false);
        mask.sees = sees.view({1, 1, queries, keys});
      }
      const PartialAttention ours = attention_block(q, k, v, mask);
      const AttentionGradients gradients = attention_block_backward(dout, q, k, v, ours.out, ours.lse, mask);
      const auto truth =
          test::run([&](const test::Tensors& in) { return plain_attention(in[0], in[1], in[2], sees).nan_to_num(); },
                    {q, k, v}, [&](const at::Tensor&) { return dout; });
      const std::string which = text(device, " causal ", causal);
      EXPECT_LT(test::difference(ours.out, truth.y.cpu()), 1e-12) << which;
      const std::int64_t seeing = causal ? queries : queries - 1;  // a softmax of nothing has gradients of NaN
      EXPECT_LT(test::difference(gradients.dq.narrow(2, 0, seeing), truth.grads[0].narrow(2, 0, seeing).cpu()), 1e-12)
          << which;
      EXPECT_EQ(gradients.dq.narrow(2, seeing, queries - seeing).abs().sum().item<double>(), 0) << which;
      if (!causal) continue;
      EXPECT_LT(test::difference(gradients.dk, truth.grads[1].cpu()), 1e-12) << which;
      EXPECT_LT(test::difference(gradients.dv, truth.grads[2].cpu()), 1e-12) << which;
    }
}

}  // namespace
}  // namespace trireme::kernels
