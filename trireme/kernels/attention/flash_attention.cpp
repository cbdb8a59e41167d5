#include "trireme/kernels/attention/flash_attention.hpp"

#include <mutex>
#include <optional>
#include <utility>

#include <ATen/Context.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/cat.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.hpp"
#include "trireme/kernels/rows/dtype.hpp"
#include "trireme/kernels/rows/first_order.hpp"
#include "trireme/kernels/rows/on_cuda.hpp"

// b samples, s tokens, n heads + 2 KV heads, d head dim; T = b s
namespace trireme::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

constexpr std::int64_t kLargestHead = 256;

struct FlashInputs {
  at::Tensor q, k, v;  // [T, heads, d] with bounds, else [b, s, heads, d]; views
};
FlashInputs flash_inputs(const at::Tensor& heads_bsnd, std::int64_t h, bool concatenated) {
  const at::Tensor all = concatenated ? heads_bsnd.flatten(0, 1) : heads_bsnd;
  const std::int64_t dim = all.dim() - 2, g = (all.size(dim) - h) / 2;
  return {all.narrow(dim, 0, h), all.narrow(dim, h, g), all.narrow(dim, h + g, g)};
}

/// Keys to the left of a query; none to the right.
std::optional<std::int64_t> left_of(std::int64_t window) {
  return window > 0 ? std::optional(window - 1) : std::nullopt;
}

struct FlashResult {
  at::Tensor out, lse, random, unused;
};
FlashResult flash_forward(const FlashInputs& in, const at::Tensor& bounds, std::int64_t longest, std::int64_t window) {
  const std::optional<at::Tensor> ends = bounds.defined() ? std::optional(bounds) : std::nullopt;
  auto result =
      at::_flash_attention_forward(in.q, in.k, in.v, ends, ends, longest, longest, /*dropout_p=*/0.0,
                                   /*is_causal=*/true, /*return_debug_mask=*/false, std::nullopt, left_of(window),
                                   window > 0 ? std::optional<std::int64_t>(0) : std::nullopt);
  return {std::get<0>(result), std::get<1>(result), std::get<2>(result), std::get<3>(result)};
}

struct FlashAttention : torch::autograd::Function<FlashAttention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& heads_bsnd, std::int64_t h,
                            const std::optional<at::Tensor>& bounds, std::int64_t longest, std::int64_t window) {
    const at::Tensor ends = bounds.value_or(at::Tensor());
    const FlashResult result = flash_forward(flash_inputs(heads_bsnd, h, ends.defined()), ends, longest, window);
    ctx->saved_data["h"] = h;
    ctx->saved_data["longest"] = longest;
    ctx->saved_data["window"] = window;
    ctx->save_for_backward({heads_bsnd, result.out, result.lse, result.random, result.unused, ends});
    return result.out.view({heads_bsnd.size(0), heads_bsnd.size(1), h, heads_bsnd.size(3)});
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    require_first_order("attention");
    const tensor_list kept = ctx->get_saved_variables();
    const at::Tensor& heads_bsnd = kept[0];
    const std::int64_t window = ctx->saved_data["window"].toInt(), longest = ctx->saved_data["longest"].toInt();
    const FlashInputs in = flash_inputs(heads_bsnd, ctx->saved_data["h"].toInt(), kept[5].defined());
    const auto [dq, dk, dv] = at::_flash_attention_backward(
        grads[0].contiguous().view(kept[1].sizes()), in.q, in.k, in.v, kept[1], kept[2], kept[5], kept[5], longest,
        longest, /*dropout_p=*/0.0, /*is_causal=*/true, kept[3], kept[4], std::nullopt, left_of(window),
        window > 0 ? std::optional<std::int64_t>(0) : std::nullopt);
    return {at::cat({dq, dk, dv}, dq.dim() - 2).view(heads_bsnd.sizes()), at::Tensor(), at::Tensor(), at::Tensor(),
            at::Tensor()};
  }
};

void require_packed(const at::Tensor& heads_bsnd, std::int64_t h) {
  require(heads_bsnd.dim() == 4 &&
              has_flash_attention(heads_bsnd.device(), heads_bsnd.scalar_type(), heads_bsnd.size(3)) && h > 0 &&
              heads_bsnd.size(2) > h && (heads_bsnd.size(2) - h) % 2 == 0,
          "flash_attention: ", h, " heads of a tensor of sizes ", heads_bsnd.sizes(), ", ", heads_bsnd.scalar_type(),
          " on ", heads_bsnd.device());
}

/// Consecutive samples that one call can take, as [begin, end) in the batch.
std::vector<std::pair<std::int64_t, std::int64_t>> calls_of(const FlashDropout& dropout, std::int64_t own_heads) {
  std::vector<std::pair<std::int64_t, std::int64_t>> calls;
  const auto count = static_cast<std::int64_t>(dropout.samples.size());
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    // The kernels count pairs of sample and head, so a call with some of the heads takes one sample.
    const bool goes_on =
        !calls.empty() && own_heads == dropout.heads && dropout.samples[at] == dropout.samples[at - 1] + 1;
    if (goes_on)
      calls.back().second = i + 1;
    else
      calls.emplace_back(i, i + 1);
  }
  return calls;
}

/// Gives the default generator of the device a seed and an offset during its lifetime.
class SeededGenerator {
 public:
  SeededGenerator(at::Device device, std::uint64_t seed, std::uint64_t offset)
      : lock_(mutex()), generator_(at::globalContext().defaultGenerator(device)) {
    old_seed_ = generator_.current_seed();
    old_offset_ = generator_.get_offset();
    generator_.set_current_seed(seed);
    generator_.set_offset(offset);
  }
  ~SeededGenerator() {
    generator_.set_current_seed(old_seed_);
    generator_.set_offset(old_offset_);
  }
  SeededGenerator(const SeededGenerator&) = delete;
  SeededGenerator& operator=(const SeededGenerator&) = delete;

 private:
  /// Ranks that are threads share the generator.
  static std::mutex& mutex() {
    static std::mutex it;
    return it;
  }
  const std::scoped_lock<std::mutex> lock_;
  at::Generator generator_;
  std::uint64_t old_seed_, old_offset_;
};

constexpr std::uint64_t kNumbersPerPair = 32;  // of Philox's counter: the kernels use one per thread of a warp

struct DroppedFlash : torch::autograd::Function<DroppedFlash> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& heads_bsnd, std::int64_t h,
                            const FlashDropout& dropout) {
    tensor_list kept{heads_bsnd}, outs;
    std::vector<std::int64_t> begins;
    for (const auto& [begin, end] : calls_of(dropout, h)) {
      const FlashInputs in = flash_inputs(heads_bsnd.narrow(0, begin, end - begin), h, false);
      const std::int64_t pair = dropout.samples[static_cast<std::size_t>(begin)] * dropout.heads + dropout.first_head;
      const SeededGenerator seeded(heads_bsnd.device(), dropout.seed,
                                   static_cast<std::uint64_t>(pair) * kNumbersPerPair);
      const std::int64_t s = heads_bsnd.size(1);
      const auto result = at::_flash_attention_forward(in.q, in.k, in.v, std::nullopt, std::nullopt, s, s, dropout.p,
                                                       /*is_causal=*/true, /*return_debug_mask=*/false);
      outs.push_back(std::get<0>(result));
      begins.push_back(begin);
      kept.insert(kept.end(), {std::get<0>(result), std::get<1>(result), std::get<2>(result), std::get<3>(result)});
    }
    begins.push_back(heads_bsnd.size(0));
    ctx->saved_data["h"] = h;
    ctx->saved_data["p"] = dropout.p;
    ctx->saved_data["begins"] = begins;
    ctx->save_for_backward(kept);
    return outs.size() == 1 ? outs[0].view_as(outs[0]) : at::cat(outs, 0);
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    require_first_order("attention");
    const tensor_list kept = ctx->get_saved_variables();
    const std::vector<std::int64_t> begins = ctx->saved_data["begins"].toIntVector();
    const at::Tensor& heads_bsnd = kept[0];
    const at::Tensor dout_bshd = grads[0].contiguous();
    const std::int64_t s = heads_bsnd.size(1);
    tensor_list parts;
    for (std::size_t i = 0; i + 1 < begins.size(); ++i) {
      const std::int64_t begin = begins[i], count = begins[i + 1] - begin;
      const FlashInputs in = flash_inputs(heads_bsnd.narrow(0, begin, count), ctx->saved_data["h"].toInt(), false);
      const at::Tensor* const of = &kept[1 + 4 * i];
      const auto [dq, dk, dv] =
          at::_flash_attention_backward(dout_bshd.narrow(0, begin, count), in.q, in.k, in.v, of[0], of[1], {}, {}, s, s,
                                        ctx->saved_data["p"].toDouble(), /*is_causal=*/true, of[2], of[3]);
      parts.push_back(at::cat({dq, dk, dv}, 2));
    }
    return {parts.size() == 1 ? parts[0] : at::cat(parts, 0), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

bool has_flash_attention(at::Device device, at::ScalarType dtype, std::int64_t d) {
  if (!device.is_cuda() || !is_reduced(dtype) || d % 8 != 0 || d > kLargestHead) return false;
  const int capability = detail::cuda_capability(device);
  // The gradients of large heads need the shared memory of a data center's GPU.
  return capability >= 80 && (d <= 192 || capability % 10 == 0);
}

at::Tensor flash_attention_with_dropout(const at::Tensor& heads_bsnd, std::int64_t h, const FlashDropout& dropout) {
  require_packed(heads_bsnd, h);
  require(static_cast<std::int64_t>(dropout.samples.size()) == heads_bsnd.size(0) &&
              dropout.first_head + h <= dropout.heads,
          "flash_attention_with_dropout: ", dropout.samples.size(), " samples for a tensor of sizes ",
          heads_bsnd.sizes(), ", heads ", dropout.first_head, " to ", dropout.first_head + h, " of ", dropout.heads);
  return DroppedFlash::apply(heads_bsnd.contiguous(), h, dropout);
}

at::Tensor flash_attention(const at::Tensor& any_heads_bsnd, std::int64_t h, const FlashMask& mask) {
  const at::Tensor heads_bsnd = any_heads_bsnd.contiguous();
  require_packed(heads_bsnd, h);
  require(!mask.bounds.defined() || (mask.bounds.scalar_type() == at::kInt && mask.longest > 0),
          "flash_attention: bounds of ", mask.bounds.scalar_type(), ", longest document ", mask.longest);
  const std::int64_t longest = mask.bounds.defined() ? mask.longest : heads_bsnd.size(1);
  return FlashAttention::apply(heads_bsnd, h, mask.bounds.defined() ? std::optional(mask.bounds) : std::nullopt,
                               longest, mask.window);
}

}  // namespace trireme::kernels
