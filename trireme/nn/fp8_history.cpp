#include "trireme/nn/fp8_history.hpp"

#include <limits>

#include <ATen/ops/frexp.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

constexpr int kUnseenGradient = 16;  // exponent of its scale

/// 2^exponent, exactly, on any device.
at::Tensor power_of_two(const at::Tensor& exponent) {
  constexpr int kBias = 127, kMantissaBits = 23;
  return exponent.add(kBias).bitwise_left_shift(kMantissaBits).view(at::kFloat);
}

}  // namespace

int Fp8History::add(kernels::Fp8 format) {
  require(steps_ == 0, "Fp8History: a tensor added after the first step");
  limits_.push_back(static_cast<float>(kernels::largest_of_format(format)));
  return static_cast<int>(limits_.size()) - 1;
}

void Fp8History::begin_step() {
  if (limits_.empty()) return;
  const auto n = static_cast<std::int64_t>(limits_.size());
  const auto options = at::TensorOptions(at::kFloat).device(device_);
  if (steps_ == 0) {
    now_n_ = at::zeros({n}, options);
    past_nH_ = at::zeros({n, kSteps}, options);
    limits_n_ = at::tensor(limits_, at::kFloat).to(device_);
    scales_n24_ = at::ones({n, 2, 4}, options);
    // Of tensors that were zero so far: gradients are much smaller than activations.
    const at::Tensor of_gradients = limits_n_ == kernels::largest_of_format(kernels::Fp8::e5m2);
    unseen_n_ = of_gradients.to(at::kInt) * kUnseenGradient;
  } else {
    past_nH_.select(1, steps_ % kSteps).copy_(now_n_);
    now_n_.zero_();
    const at::Tensor largest_n = past_nH_.amax(1);
    // The exponent of the quotient, rounded down, as in kernels/fp8.cpp.
    const at::Tensor quotient_n = (limits_n_ / largest_n).clamp_max(std::numeric_limits<float>::max());
    const at::Tensor exponent_n = std::get<1>(at::frexp(quotient_n)).sub(1).clamp(-126, 126);
    const at::Tensor used_n = at::where(largest_n > 0, exponent_n, unseen_n_);
    scales_n24_.select(1, 0).copy_(power_of_two(used_n).unsqueeze(1).expand({n, 4}));
    scales_n24_.select(1, 1).copy_(power_of_two(used_n.neg()).unsqueeze(1).expand({n, 4}));
  }
  ++steps_;
}

kernels::Fp8Options Fp8History::options(int tensor, bool records) const {
  if (steps_ == 0) return {};  // a validation ahead of all steps
  return {.scale = steps_ > 1 ? scales_n24_[tensor] : at::Tensor(),
          .largest = records ? now_n_.narrow(0, tensor, 1) : at::Tensor()};
}

}  // namespace trireme
