// Random shapes, dtypes and places in memory for every CUDA kernel, next to the same function on the CPU in f64. A few
// without a GPU machine's patience; TRIREME_SHAPES=10000 for compute-sanitizer.
#include <cmath>
#include <cstdlib>
#include <functional>
#include <random>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/kernels/activation/swiglu.hpp"
#include "trireme/kernels/attention/dropped_rows.hpp"
#include "trireme/kernels/attention/rope.hpp"
#include "trireme/kernels/dropout/dropout.hpp"
#include "trireme/kernels/loss/fused_logits.hpp"
#include "trireme/kernels/matmul/fp8.hpp"
#include "trireme/kernels/matmul/matmul.hpp"
#include "trireme/kernels/norm/residual_norm.hpp"
#include "trireme/kernels/optimizer/block_squares.hpp"
#include "trireme/kernels/optimizer/optimizer_step.hpp"
#include "trireme/kernels/rows/on_cuda.hpp"

namespace trireme::kernels {
namespace {

using Inputs = std::vector<at::Tensor>;

class RandomShapes : public testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
    const auto number = [](const char* name, int otherwise) {
      const char* asked = std::getenv(name);
      return asked == nullptr ? otherwise : std::atoi(asked);
    };
    shapes_ = number("TRIREME_SHAPES", 40);
    const int seed = number("TRIREME_SHAPES_SEED", 5);  // other shapes, for several processes at once
    at::manual_seed(static_cast<std::uint64_t>(seed));
    random_.seed(static_cast<std::uint64_t>(seed));
  }

  std::int64_t between(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution(least, most)(random_);
  }
  /// Mostly widths that a vector divides, which have kernels of their own.
  std::int64_t width(std::int64_t most) {
    const std::int64_t any = between(1, most);
    return between(0, 3) == 0 ? any : std::max<std::int64_t>(8, any / 8 * 8);
  }
  at::ScalarType dtype() {
    constexpr at::ScalarType kAll[] = {at::kFloat, at::kBFloat16, at::kHalf};
    return kAll[between(0, 2)];
  }
  /// Values that the dtype can hold, in f64.
  static at::Tensor values(at::IntArrayRef sizes, at::ScalarType dtype) {
    return at::randn(sizes, at::kDouble).to(dtype).to(at::kDouble);
  }
  /// On the GPU, contiguous, and with any alignment that an element can have.
  at::Tensor placed(const at::Tensor& x, at::ScalarType dtype) {
    if (!x.defined()) return x;
    const std::int64_t before = between(0, 2) == 0 ? between(1, 7) : 0;
    // One copy and no kernel: under compute-sanitizer every launch takes milliseconds.
    at::Tensor storage = at::zeros({before + x.numel() + 3}, dtype);
    storage.narrow(0, before, x.numel()).copy_(x.flatten());
    return storage.cuda().narrow(0, before, x.numel()).view(x.sizes());
  }
  static double eps(at::ScalarType dtype) {
    return dtype == at::kFloat ? 0x1p-23 : dtype == at::kBFloat16 ? 0x1p-7 : 0x1p-10;
  }
  /// `steps`: roundings, of values as large as the largest.
  static void near(const at::Tensor& found, const at::Tensor& wanted, at::ScalarType dtype, double steps,
                   const std::string& what) {
    ASSERT_EQ(found.sizes(), wanted.sizes()) << what;
    if (wanted.numel() == 0) return;
    const double largest = std::max(1.0, wanted.abs().max().item<double>());
    EXPECT_LE((found.cpu().to(at::kDouble) - wanted).abs().max().item<double>(), steps * eps(dtype) * largest) << what;
  }

  /// f on the GPU, and on the CPU in f64: its result and the gradients of all inputs.
  void same(const std::string& what, at::ScalarType type, const Inputs& inputs,
            const std::function<at::Tensor(const Inputs&)>& f, double steps = 4, double gradient_steps = 16) {
    const auto run = [&](const std::function<at::Tensor(const at::Tensor&)>& place, at::Tensor dy) {
      Inputs leaves;
      for (const at::Tensor& x : inputs)
        leaves.push_back(x.defined() ? place(x).detach().requires_grad_() : at::Tensor());
      const at::Tensor y = f(leaves);
      Inputs out{y.detach()};
      y.backward(place(dy).view(y.sizes()));
      for (const at::Tensor& leaf : leaves)
        if (leaf.defined()) out.push_back(leaf.grad());
      return out;
    };
    Inputs plain;
    for (const at::Tensor& x : inputs) plain.push_back(x);
    const at::Tensor dy = values(f(plain).sizes(), type);
    const Inputs wanted = run([](const at::Tensor& x) { return x.clone(); }, dy);
    const Inputs found = run([&](const at::Tensor& x) { return placed(x, type); }, dy);
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      near(found[i], wanted[i], type, i == 0 ? steps : gradient_steps, text(what, i == 0 ? "" : text(" gradient ", i)));
  }

  int shapes_ = 0;
  std::mt19937_64 random_;
};

TEST_F(RandomShapes, ResidualNorm) {
  for (int i = 0; i < shapes_; ++i) {
    const at::ScalarType type = dtype();
    const std::int64_t T = between(1, 40), D = width(i % 20 == 0 ? 9000 : 600);
    const bool layer = between(0, 1) == 0, residual = between(0, 1) == 0;
    // The sum is rounded before its norm is taken: exact halves of small integers make that exact.
    const auto coarse = [&](at::IntArrayRef sizes) { return (values(sizes, type) * 4).round() / 4; };
    same(
        text(layer ? "layer" : "RMS", " norm of [", T, ", ", D, "] ", type, residual ? " + residual" : ""), type,
        {coarse({T, D}), residual ? coarse({T, D}) : at::Tensor(), values({D}, type),
         layer ? values({D}, type) : at::Tensor()},
        [](const Inputs& in) {
          const auto [sum, y] = residual_norm(in[0], in[1], in[2], in[3], 1e-5);
          return at::cat({sum, y}, 1);
        },
        6, 24);
  }
}

TEST_F(RandomShapes, ColumnSums) {
  for (int i = 0; i < shapes_; ++i) {
    const at::ScalarType type = dtype();
    const at::Tensor x = values({between(1, 700), width(300)}, type), on_gpu = placed(x, type);
    if (!detail::has_column_sums_on_cuda(on_gpu)) continue;
    const at::ScalarType into = between(0, 1) == 0 ? type : at::kFloat;
    const bool add = between(0, 1) == 0;
    const at::Tensor before = values({x.size(1)}, into), out = placed(before, into);
    detail::column_sums_on_cuda(out, on_gpu, add);
    near(out, add ? x.sum(0) + before : x.sum(0), into == type ? type : at::kFloat, 16,
         text("column sums of ", x.sizes(), " ", type, " into ", into));
  }
}

TEST_F(RandomShapes, Swiglu) {
  for (int i = 0; i < shapes_; ++i) {
    const at::ScalarType type = dtype();
    const std::int64_t T = between(1, 60), F = width(400);
    same(text("swiglu of [", T, ", 2 x ", F, "] ", type), type, {values({T, 2 * F}, type)},
         [](const Inputs& in) { return swiglu(in[0]); });
  }
}

TEST_F(RandomShapes, Rope) {
  for (int i = 0; i < shapes_; ++i) {
    const at::ScalarType type = dtype();
    const std::int64_t T = between(1, 60), heads = between(1, 9), d = 2 * between(1, 64), rotated = between(0, heads);
    const at::Tensor angles = at::rand({T, d / 2}, at::kDouble) * 6;
    const at::Tensor cos = angles.cos().to(at::kFloat).to(at::kDouble),
                     sin = angles.sin().to(at::kFloat).to(at::kDouble);
    same(text("rope of [", T, ", ", heads, ", ", d, "], ", rotated, " rotated, ", type), type,
         {values({T, heads, d}, type)}, [&](const Inputs& in) {
           const auto like = [&](const at::Tensor& x) { return in[0].is_cuda() ? x.to(at::kFloat).cuda() : x; };
           return rope(in[0], like(cos), like(sin), rotated);
         });
  }
}

TEST_F(RandomShapes, Dropout) {
  for (int i = 0; i < shapes_; ++i) {
    const at::ScalarType type = dtype();
    const std::int64_t T = between(1, 60), D = width(300);
    const at::Tensor rows = at::randint(0, 1'000'000, {T}, at::kLong);
    Inputs inputs{values({T, D}, type)};
    if (between(0, 1)) inputs.push_back(values({T, D}, type));
    same(text("dropout of [", T, ", ", D, "] ", type, inputs.size() > 1 ? " and residual" : ""), type, inputs,
         [&](const Inputs& in) {
           return dropout(in[0], 0.3, dropout_key(3, "test"), {.rows = rows.to(in[0].device()), .row_width = D},
                          in.size() > 1 ? in[1] : at::Tensor());
         });
  }
}

TEST_F(RandomShapes, BlockSquares) {
  for (int i = 0; i < shapes_; ++i) {
    std::vector<SquaresRun> cpu, gpu;
    std::int64_t block = 0;
    for (std::int64_t run = between(1, 6); run > 0; --run) {
      const at::ScalarType type = dtype();
      const std::int64_t phase = between(0, kSquaresBlock - 1), n = between(1, 5000);
      const at::Tensor x = values({n}, type);
      cpu.push_back({x.to(type), phase, block});
      gpu.push_back({placed(x, type), phase, block});
      block += (phase + n + kSquaresBlock - 1) / kSquaresBlock;
    }
    const at::Tensor wanted = at::zeros({block}, at::kDouble), found = at::zeros({block}, at::kDouble).cuda();
    add_block_squares(cpu, wanted);
    add_block_squares(gpu, found);
    EXPECT_TRUE(found.cpu().allclose(wanted, 1e-12, 0)) << block << " blocks";
  }
}

TEST_F(RandomShapes, FusedLogits) {
  for (int i = 0; i < shapes_; ++i) {
    const at::ScalarType type = dtype();
    const std::int64_t rows = between(1, 20), columns = width(900), padding = between(0, 9), first = between(0, 50);
    const at::Tensor wide = values({rows, columns + padding}, type), exact = wide.narrow(1, 0, columns);
    const at::Tensor targets = at::randint(0, first + columns + 20, {rows}, at::kLong);
    const at::Tensor logits = placed(wide, type).narrow(1, 0, columns);
    const at::Tensor stats = logit_stats(logits, targets.cuda(), first).cpu().to(at::kDouble);
    const at::Tensor max = std::get<0>(exact.max(1)), sum = (exact - max.unsqueeze(1)).exp().sum(1);
    const std::string what = text("logits [", rows, ", ", columns, " + ", padding, "] ", type);
    EXPECT_TRUE(stats[0].equal(max)) << what;
    EXPECT_TRUE(stats[1].allclose(sum, 1e-5, 0)) << what;
    const at::Tensor scale = 1 / sum, on_target = at::rand({rows}, at::kDouble), less = at::rand({rows}, at::kDouble);
    at::Tensor wanted = (exact - max.unsqueeze(1)).exp() * scale.unsqueeze(1) - less.unsqueeze(1);
    for (std::int64_t row = 0; row < rows; ++row)
      if (const std::int64_t at = targets[row].item<std::int64_t>() - first; at >= 0 && at < columns)
        wanted[row][at] -= on_target[row];
    const auto f32 = [](const at::Tensor& x) { return x.to(at::kFloat).cuda(); };
    softmax_grads_(logits, f32(max), f32(scale), targets.cuda(), first, f32(on_target), f32(less), padding);
    near(logits, wanted, type, 4, what);
  }
}

TEST_F(RandomShapes, Adam) {
  for (int i = 0; i < shapes_; ++i) {
    const AdamNumbers numbers{.lr = 1e-2, .decoupled = between(0, 1) == 0, .step = between(1, 9)};
    std::vector<AdamSlice> cpu, gpu;
    at::ScalarType gradient_type = dtype(), model_type = dtype();
    for (std::int64_t slices = between(0, 49) == 0 ? 40 : between(1, 3); slices > 0; --slices) {
      if (between(0, 3) == 0) gradient_type = dtype(), model_type = dtype();  // another launch
      const std::int64_t n = between(1, 4000);
      // Second moments not at 0: w and g may cancel, and a root near 0 would amplify what rounding left of them.
      const at::Tensor w = values({n}, at::kFloat), g = values({n}, gradient_type), m = values({n}, at::kFloat) * 0.1,
                       v = values({n}, at::kFloat).square().clamp_min(1e-4);
      const double decay = between(0, 1) == 0 ? 0.1 : 0;
      gpu.push_back({{placed(w, at::kFloat), placed(g, gradient_type), placed(at::zeros({n}, at::kDouble), model_type)},
                     placed(m, at::kFloat),
                     placed(v, at::kFloat),
                     decay});
      cpu.push_back({{w.clone(), g, {}}, m.clone(), v.clone(), decay});
    }
    adam_steps(cpu, numbers, {at::scalar_tensor(0.5, at::kDouble)});
    adam_steps(gpu, numbers, {at::scalar_tensor(0.5, at::kFloat).cuda()});
    for (std::size_t s = 0; s < gpu.size(); ++s) {
      const auto& [slices, m, v, decay] = gpu[s];
      const std::string what =
          text("Adam, slice ", s, " of ", gpu.size(), ": ", slices.weight.numel(), " gradients in ",
               slices.gradient.scalar_type(), ", model in ", slices.model.scalar_type());
      near(slices.weight, cpu[s].values.weight, at::kFloat, 8, what);
      near(m, cpu[s].m, at::kFloat, 4, what);
      near(v, cpu[s].v, at::kFloat, 4, what);
      EXPECT_TRUE(slices.model.equal(slices.weight.to(slices.model.scalar_type()))) << what;
    }
  }
}

TEST_F(RandomShapes, Fp8) {
  for (int i = 0; i < shapes_; ++i) {
    const at::ScalarType type = dtype();
    const Fp8 format = between(0, 1) == 0 ? Fp8::e4m3 : Fp8::e5m2;
    const std::int64_t most = type == at::kHalf ? 10 : 20;  // what f16 holds
    const at::Tensor x = values({16 * between(1, 12), 16 * between(1, 12)}, type) * std::exp2(between(-most, most));
    const at::Tensor held = x.to(type).to(at::kDouble);
    const Fp8Matrix wanted = to_fp8(held.to(type), format, Fp8Layout::rows),
                    found = to_fp8(placed(held, type), format, static_cast<Fp8Layout>(between(0, 2)));
    const std::string what = text("fp8 of ", x.sizes(), " ", type);
    EXPECT_TRUE(found.scale.cpu().select(1, 0).equal(wanted.scale.select(1, 0))) << what;
    const at::Tensor rows = wanted.rows.to(at::kFloat);
    EXPECT_TRUE(!found.rows.defined() || found.rows.cpu().to(at::kFloat).equal(rows)) << what;
    EXPECT_TRUE(!found.columns.defined() || found.columns.cpu().to(at::kFloat).equal(rows.t())) << what;
    const at::Tensor largest = at::zeros({1}, at::TensorOptions(at::kFloat).device(at::kCUDA));
    const Fp8Options by_row{.scaling = Fp8Scaling::row, .largest = largest};
    const Fp8Matrix lines = to_fp8(placed(held, type), format, Fp8Layout::both, by_row),
                    wanted_lines = to_fp8(held.to(type), format, Fp8Layout::both, {.scaling = Fp8Scaling::row});
    EXPECT_TRUE(lines.rows.cpu().to(at::kFloat).equal(wanted_lines.rows.to(at::kFloat))) << what;
    EXPECT_TRUE(lines.columns.cpu().to(at::kFloat).equal(wanted_lines.columns.to(at::kFloat))) << what;
    EXPECT_EQ(largest.item<float>(), held.abs().max().item<float>()) << what;
  }
}

TEST_F(RandomShapes, LossTerms) {
  for (int i = 0; i < shapes_; ++i) {
    const std::int64_t C = between(1, 600), V = between(1, 50);
    const at::Tensor logits = values({C, V}, at::kFloat), targets = at::randint(0, V, {C}, at::kLong);
    const double smoothing = between(0, 1) == 0 ? 0 : 0.1;
    const at::Tensor lse = logits.logsumexp(1);
    const at::Tensor wanted =
        lse - (1 - smoothing) * logits.gather(1, targets.unsqueeze(1)).squeeze(1) - smoothing * logits.mean(1);
    const at::Tensor on_gpu = placed(logits, at::kFloat), of = targets.cuda();
    const LossTerms terms = loss_terms(logit_stats(on_gpu, of, 0), of, {.label_smoothing = smoothing, .entries = V});
    near(terms.losses, wanted, at::kFloat, 32, text("losses of [", C, ", ", V, "]"));
  }
}

TEST_F(RandomShapes, DroppedRows) {
  for (int i = 0; i < shapes_; ++i) {
    const at::ScalarType type = between(0, 1) == 0 ? at::kBFloat16 : at::kHalf;
    const std::int64_t P = between(1, 5), r = between(1, 20), first = between(0, 20), s = (first + r + 3) / 4 * 4;
    const AttentionDropout dropout{.p = 0.2, .key = dropout_key(3, "rows"), .rows_bhs = {}, .row_width = s};
    detail::DroppedTile tile{.dropout = dropout, .scale = 0.3, .first_query = first, .rows_Pr = {}, .sees_Prs = {}};
    tile.rows_Pr = at::randint(0, 1000, {P, r}, at::kLong);
    // A query sees itself at least.
    if (between(0, 1) == 0)
      tile.sees_Prs = (at::rand({P, r, s}) > 0.5).logical_or_(at::eye(s, at::kBool).narrow(0, first, r));
    const at::Tensor scores = values({P, r, s}, at::kFloat), dprobs = values({P, r, s}, at::kFloat),
                     delta = values({P, r}, at::kFloat), lse = at::zeros({P, r}, at::kDouble);
    const at::Tensor probs = detail::dropped_probabilities(scores, tile, at::kDouble, lse);
    const detail::DroppedGradients wanted = detail::dropped_gradients(scores, dprobs, tile, at::kDouble, lse, delta);
    detail::DroppedTile on_gpu = tile;
    on_gpu.rows_Pr = tile.rows_Pr.cuda();
    if (tile.sees_Prs.defined()) on_gpu.sees_Prs = tile.sees_Prs.cuda();
    const auto f32 = [](const at::Tensor& x) { return x.to(at::kFloat).cuda(); };
    const at::Tensor found_lse = at::zeros({P, r}, at::TensorOptions(at::kFloat).device(at::kCUDA));
    const std::string what = text("dropped rows of [", P, ", ", r, ", ", s, "] from ", first);
    near(detail::dropped_probabilities(f32(scores), on_gpu, type, found_lse), probs, type, 2, what);
    near(found_lse, lse, at::kFloat, 16, what);
    const detail::DroppedGradients found =
        detail::dropped_gradients(f32(scores), f32(dprobs), on_gpu, type, f32(lse), f32(delta));
    near(found.probs_Prs, wanted.probs_Prs, type, 2, what);
    near(found.dscores_Prs, wanted.dscores_Prs, type, 2, what);
  }
}

}  // namespace
}  // namespace trireme::kernels
