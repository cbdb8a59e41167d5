#pragma once
// Norms over the features of a token. Their weights are replicated on every rank.
#include "trireme/kernels/norm/residual_norm.hpp"
#include "trireme/nn/layer.hpp"
#include "trireme/nn/rebuild.hpp"

namespace trireme {

/// A norm over the last dim, and how to recompute its output from its input.
class Norm : public Layer {
 public:
  virtual at::Tensor forward(const at::Tensor& x) = 0;
  /// Adds `residual` (if defined) to the residual stream x: the sum, which goes on as the stream, and its norm.
  virtual kernels::ResidualNorm forward(const at::Tensor& x, const at::Tensor& residual) = 0;
  virtual Rebuild rebuild(const at::Tensor& x) const = 0;
};

// `partial`: axes whose ranks apply the same weight to different tokens or heads (ParamSpec::partial).

/// What is multiplied with the normalized values: the weight, or 1 + the weight (Gemma), which is zero at the start.
enum class NormScale { weight, one_plus_weight };

/// y = x / sqrt(mean(x^2) + eps) * w
class RmsNorm final : public Norm {
 public:
  RmsNorm(std::int64_t features, double eps, const Parallel& parallel, AxisSet partial = {},
          NormScale scale = NormScale::weight);
  at::Tensor forward(const at::Tensor& x) override;
  kernels::ResidualNorm forward(const at::Tensor& x, const at::Tensor& residual) override;
  Rebuild rebuild(const at::Tensor& x) const override;

  at::Tensor weight_D;

 private:
  const double eps_;
  const NormScale scale_;
};

/// y = (x - mean(x)) / sqrt(var(x) + eps) * w + b
class LayerNorm final : public Norm {
 public:
  LayerNorm(std::int64_t features, double eps, const Parallel& parallel, AxisSet partial = {});
  at::Tensor forward(const at::Tensor& x) override;
  kernels::ResidualNorm forward(const at::Tensor& x, const at::Tensor& residual) override;
  Rebuild rebuild(const at::Tensor& x) const override;

  at::Tensor weight_D, bias_D;

 private:
  const double eps_;
};

}  // namespace trireme
