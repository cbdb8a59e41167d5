#include "trireme/nn/rope.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include <ATen/ops/outer.h>
#include <ATen/ops/tensor.h>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

using Frequencies = std::vector<double>;

Frequencies plain(double theta, std::int64_t head_dim) {
  Frequencies out;
  for (std::int64_t i = 0; i < head_dim; i += 2)
    out.push_back(std::pow(theta, -static_cast<double>(i) / static_cast<double>(head_dim)));
  return out;
}

/// The frequencies of one kind of scaling, for samples of `length` tokens.
struct FrequenciesOf {
  const RopeOptions& options;
  double length;

  Frequencies base() const { return plain(options.theta, options.head_dim); }

  Frequencies operator()(const PlainRope&) const { return base(); }

  Frequencies operator()(const LinearScaling& s) const {
    Frequencies out = base();
    for (double& frequency : out) frequency /= s.factor;
    return out;
  }

  Frequencies operator()(const DynamicScaling& s) const {
    const auto dim = static_cast<double>(options.head_dim), old_length = static_cast<double>(s.old_length);
    require<ConfigError>(dim > 2, "RoPE: head_dim = ", dim, " with dynamic scaling: must be above 2");
    const double growth = s.factor * std::max(length, old_length) / old_length - (s.factor - 1);
    return plain(options.theta * std::pow(growth, dim / (dim - 2)), options.head_dim);
  }

  Frequencies operator()(const Llama3Scaling& s) const {
    Frequencies out = base();
    for (double& frequency : out) {
      const double turns = static_cast<double>(s.old_length) * frequency / (2 * std::numbers::pi);
      if (turns > s.high_freq_factor) continue;
      const double smooth =
          turns < s.low_freq_factor ? 0 : (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
      frequency = (1 - smooth) * frequency / s.factor + smooth * frequency;
    }
    return out;
  }

  Frequencies operator()(const YarnScaling& s) const {
    const auto dim = static_cast<double>(options.head_dim);
    const auto dim_of_turns = [&](double turns) {
      return dim * std::log(static_cast<double>(s.old_length) / (turns * 2 * std::numbers::pi)) /
             (2 * std::log(options.theta));
    };
    double low = dim_of_turns(s.beta_fast), high = dim_of_turns(s.beta_slow);
    if (s.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, dim - 1);
    if (low == high) high += 0.001;  // as in transformers: a step instead of a ramp
    Frequencies out = base();
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double divided = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
      out[i] = out[i] / s.factor * divided + out[i] * (1 - divided);
    }
    return out;
  }
};

double magnitude(const RopeFrequencies& frequencies) {
  const auto* yarn = std::get_if<YarnScaling>(&frequencies);
  return yarn ? yarn->attention_factor : 1;
}

}  // namespace

double yarn_attention_factor(double factor, double mscale, double mscale_all_dim) {
  const auto of = [&](double scale) { return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1; };
  return mscale != 0 && mscale_all_dim != 0 ? of(mscale) / of(mscale_all_dim) : of(1);
}

Rope::Rope(RopeOptions options) : options_(std::move(options)) {
  require<ConfigError>(options_.head_dim > 0 && options_.head_dim % 2 == 0, "RoPE: head_dim = ", options_.head_dim,
                       ": must be even");
}

Rotation Rope::rotation(const at::Tensor& positions_T, std::int64_t sequence_length, at::ScalarType model_dtype) {
  at::Tensor& frequencies_d = frequencies_d_[sequence_length];
  if (!frequencies_d.defined() || frequencies_d.device() != positions_T.device()) {
    const Frequencies numbers =
        std::visit(FrequenciesOf{options_, static_cast<double>(sequence_length)}, options_.frequencies);
    frequencies_d = at::tensor(numbers, at::kDouble).to(positions_T.device());
  }
  // Always in f64: position x frequency in f32 is off by 1e-3 at position 10^4.
  const at::Tensor angles_Td = at::outer(positions_T.to(at::kDouble), frequencies_d);
  const at::ScalarType type = model_dtype == at::kDouble ? at::kDouble : at::kFloat;
  const double scale = magnitude(options_.frequencies);
  if (scale == 1) return {angles_Td.cos().to(type), angles_Td.sin().to(type)};
  return {angles_Td.cos().mul_(scale).to(type), angles_Td.sin().mul_(scale).to(type)};
}

}  // namespace trireme
