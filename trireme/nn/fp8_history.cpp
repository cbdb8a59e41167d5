#include "trireme/nn/fp8_history.hpp"

#include <cstring>
#include <limits>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/frexp.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

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

void Fp8History::allocate() {
  const auto n = static_cast<std::int64_t>(limits_.size());
  const auto options = at::TensorOptions(at::kFloat).device(device_);
  now_n_ = at::zeros({n}, options);
  past_nH_ = at::zeros({n, kSteps}, options);
  limits_n_ = at::tensor(limits_, at::kFloat).to(device_);
  scales_n24_ = at::ones({n, 2, 4}, options);
  // Of tensors that were zero so far: gradients are much smaller than activations.
  const at::Tensor of_gradients = limits_n_ == kernels::largest_of_format(kernels::Fp8::e5m2);
  unseen_n_ = of_gradients.to(at::kInt) * kUnseenGradient;
}

void Fp8History::begin_step() {
  if (limits_.empty()) return;
  if (!now_n_.defined()) allocate();
  if (steps_ > 0) {
    past_nH_.select(1, steps_ % kSteps).copy_(at::where(now_n_.isfinite(), now_n_, at::zeros_like(now_n_)));
    now_n_.zero_();
    set_scales();
  }
  ++steps_;
}

void Fp8History::set_scales() {
  const auto n = static_cast<std::int64_t>(limits_.size());
  const at::Tensor largest_n = past_nH_.amax(1);
  // The exponent of the quotient, rounded down, as in kernels/matmul/fp8.cpp.
  const at::Tensor quotient_n = (limits_n_ / largest_n).clamp_max(std::numeric_limits<float>::max());
  const at::Tensor exponent_n = std::get<1>(at::frexp(quotient_n)).sub(1).clamp(-126, 126);
  const at::Tensor used_n = at::where(largest_n > 0, exponent_n, unseen_n_);
  scales_n24_.select(1, 0).copy_(power_of_two(used_n).unsqueeze(1).expand({n, 4}));
  scales_n24_.select(1, 1).copy_(power_of_two(used_n.neg()).unsqueeze(1).expand({n, 4}));
}

void Fp8History::discard(bool is_newest) {
  if (!now_n_.defined()) return;
  if (is_newest)
    now_n_.zero_();
  else
    past_nH_.select(1, (steps_ - 1) % kSteps).zero_();  // where begin_step() has put it
}

Fp8History::State Fp8History::state() const {
  if (!now_n_.defined()) return {};
  return {.steps = steps_, .now_n = now_n_.clone(), .past_nH = past_nH_.clone()};
}

bool Fp8History::set_state(const State& state) {
  const auto n = static_cast<std::int64_t>(limits_.size());
  if (state.steps < 1 || n == 0 || state.now_n.sizes() != at::IntArrayRef{n} ||
      state.past_nH.sizes() != at::IntArrayRef{n, kSteps})
    return false;
  if (!now_n_.defined()) allocate();
  steps_ = state.steps;
  now_n_.copy_(state.now_n);
  past_nH_.copy_(state.past_nH);
  return true;
}

void Fp8History::reset() {
  steps_ = 0;
  for (const at::Tensor& x : {now_n_, past_nH_})
    if (x.defined()) x.zero_();
}

kernels::Fp8Options Fp8History::options(int tensor, bool records) const {
  if (steps_ == 0) return {};  // a validation ahead of all steps
  return {.scale = steps_ > 1 ? scales_n24_[tensor] : at::Tensor(),
          .largest = records ? now_n_.narrow(0, tensor, 1) : at::Tensor()};
}

std::vector<std::uint8_t> to_bytes(const Fp8History::State& state) {
  if (state.steps < 1) return {};
  const at::Tensor floats = at::cat({state.now_n, state.past_nH.flatten()}).cpu().contiguous();
  std::vector<std::uint8_t> out(sizeof state.steps + floats.nbytes());
  std::memcpy(out.data(), &state.steps, sizeof state.steps);
  std::memcpy(out.data() + sizeof state.steps, floats.const_data_ptr(), floats.nbytes());
  return out;
}

Fp8History::State fp8_state_from_bytes(const std::vector<std::uint8_t>& bytes) {
  constexpr std::size_t kEach = sizeof(float) * (Fp8History::kSteps + 1);  // of a tensor
  Fp8History::State out;
  if (bytes.size() <= sizeof out.steps || (bytes.size() - sizeof out.steps) % kEach != 0) return {};
  const auto n = static_cast<std::int64_t>((bytes.size() - sizeof out.steps) / kEach);
  std::memcpy(&out.steps, bytes.data(), sizeof out.steps);
  const at::Tensor floats = at::empty({n * (Fp8History::kSteps + 1)}, at::kFloat);
  std::memcpy(floats.mutable_data_ptr(), bytes.data() + sizeof out.steps, floats.nbytes());
  out.now_n = floats.narrow(0, 0, n);
  out.past_nH = floats.narrow(0, n, n * Fp8History::kSteps).view({n, Fp8History::kSteps});
  return out;
}

}  // namespace trireme
