#include "trireme/nn/rope.hpp"

#include <cmath>
#include <numbers>
#include <vector>

#include <ATen/ops/outer.h>
#include <ATen/ops/tensor.h>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

double scaled(double frequency, const Llama3Scaling& s) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double length = static_cast<double>(s.old_length);
  if (wavelength < length / s.high_freq_factor) return frequency;
  if (wavelength > length / s.low_freq_factor) return frequency / s.factor;
  const double smooth = (length / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1 - smooth) * frequency / s.factor + smooth * frequency;
}

}  // namespace

Rotation rotation(const RopeOptions& options, const at::Tensor& positions_T, at::ScalarType model_dtype) {
  require<ConfigError>(options.head_dim > 0 && options.head_dim % 2 == 0, "RoPE: head_dim = ", options.head_dim,
                       ": must be even");
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < options.head_dim; i += 2) {
    const double f = std::pow(options.theta, -static_cast<double>(i) / static_cast<double>(options.head_dim));
    frequencies.push_back(options.scaling ? scaled(f, *options.scaling) : f);
  }
  // Always in f64: position x frequency in f32 is off by 1e-3 at position 10^4.
  const at::Tensor angles_Td =
      at::outer(positions_T.to(at::kDouble), at::tensor(frequencies, at::kDouble).to(positions_T.device()));
  const at::ScalarType type = model_dtype == at::kDouble ? at::kDouble : at::kFloat;
  return {angles_Td.cos().to(type), angles_Td.sin().to(type)};
}

}  // namespace trireme
