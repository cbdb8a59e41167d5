#pragma once
// Fused optimizer updates, one pass over a slice of parameters: gradient scaling, weight decay, moments, weight, and
// the low-precision copy used by the model.
#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

namespace trireme::kernels {

/// Slices of equal length, flat and contiguous. Weights are f32 or f64; gradient, moments and copy may also be bf16 or
/// f16 and are read and written once.
struct StepSlices {
  at::Tensor weight;    // updated
  at::Tensor gradient;  // read
  at::Tensor model;     // undefined, or receives the new weights, rounded: used in forward and backward
};

/// The gradient is first multiplied by this: 1 / loss scale and the clip factor, as one tensor that may still be in
/// flight (0-dim, f32 or f64, on the slices' device). NaN: nothing is updated, which skips a step without a device
/// synchronization.
struct GradientFactor {
  at::Tensor value;  // undefined: 1
};

struct AdamNumbers {
  double lr = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool decoupled = true;  // AdamW; else the decay is added to the gradient (Adam)
  std::int64_t step = 1;  // from 1
};

/// g = factor dL/dw          w <- w (1 - lr decay)   (decoupled; else g <- g + decay w)
/// m <- beta1 m + (1 - beta1) g        v <- beta2 v + (1 - beta2) g^2
/// w <- w - lr / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + eps)
void adam_step(const StepSlices& slices, const at::Tensor& m, const at::Tensor& v, const AdamNumbers& numbers,
               const GradientFactor& factor = {});

/// What differs between the slices of an update.
struct AdamSlice {
  StepSlices values;
  at::Tensor m, v;
  double weight_decay = 0;
};
/// adam_step of each, with its own decay instead of that in `numbers`; on a GPU many of them in one launch.
void adam_steps(std::span<const AdamSlice> slices, AdamNumbers numbers, const GradientFactor& factor = {});

struct SgdNumbers {
  double lr = 0, momentum = 0, weight_decay = 0;
  bool nesterov = false;
  std::int64_t step = 1;
};

/// g = factor dL/dw + decay w          u <- momentum u + g  (in the first step u <- g)
/// w <- w - lr u                       nesterov: w <- w - lr (g + momentum u)
/// Without momentum `u` is undefined.
void sgd_step(const StepSlices& slices, const at::Tensor& u, const SgdNumbers& numbers,
              const GradientFactor& factor = {});

}  // namespace trireme::kernels
