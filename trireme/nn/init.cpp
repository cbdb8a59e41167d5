#include "trireme/nn/init.hpp"

#include <charconv>
#include <cmath>
#include <functional>
#include <limits>

#include <ATen/ops/empty.h>

#include "trireme/base/error.hpp"
#include "trireme/base/philox.hpp"
#include "trireme/kernels/rows/parallel.hpp"

namespace trireme {
namespace {

constexpr double kCut = 3;  // of the truncated normal distribution, in standard deviations

struct Numbers {
  enum class Kind { constant, normal, cut_normal, uniform } kind;
  double scale;  // the constant, the standard deviation, or the bound
  // Elements from this one on have another scale.
  std::int64_t split = std::numeric_limits<std::int64_t>::max();
  double scale_after = scale;

  double scale_of(std::int64_t element) const { return element < split ? scale : scale_after; }

  /// Elements first, first + 1, ... of a stream. `again`: other streams, for elements that are drawn once more.
  void fill(const RandomStream& stream, const std::function<RandomStream(int)>& again, std::int64_t first, double* out,
            std::int64_t count) const {
    if (kind == Kind::constant) {
      std::fill_n(out, count, scale);
    } else if (kind == Kind::uniform) {
      for (std::int64_t i = 0; i < count; ++i)
        out[i] = (2 * stream.uniform(static_cast<std::uint64_t>(first + i)) - 1) * scale;
    } else {
      for (std::int64_t i = 0; i < count;) {
        const auto element = static_cast<std::uint64_t>(first + i);
        const auto pair = stream.normal_pair(element / 2);
        for (std::uint64_t k = element % 2; k < 2 && i < count; ++k, ++i) out[i] = pair[k] * scale_of(first + i);
      }
    }
    if (kind != Kind::cut_normal) return;
    for (std::int64_t i = 0; i < count; ++i)
      for (int times = 1; std::abs(out[i]) > kCut * scale; ++times)
        out[i] = again(times).normal(static_cast<std::uint64_t>(first + i)) * scale;
  }
};

/// 3 of "layers.3.mlp.down.weight"; 0 if it names no layer.
std::int64_t layer_in(std::string_view name) {
  constexpr std::string_view kLayers = "layers.";
  std::int64_t layer = 0;
  if (name.starts_with(kLayers)) std::from_chars(name.data() + kLayers.size(), name.data() + name.size(), layer);
  return layer;
}

/// The standard deviation of weights that write to the residual stream.
double residual_range(std::string_view name, const InitOptions& options) {
  const auto depth = static_cast<double>(layer_in(name) + 1), layers = static_cast<double>(options.layers);
  switch (options.scheme) {
    case InitScheme::gpt2: return options.range / std::sqrt(2 * layers);
    case InitScheme::depth:
    case InitScheme::torchtitan: return options.range / std::sqrt(2 * depth);
    case InitScheme::llama:
    case InitScheme::plain: break;
  }
  return options.range;
}

Numbers numbers_for(const std::string& name, const ParamSpec& spec, const InitOptions& options) {
  const auto fan_in = static_cast<double>(spec.fan_in > 0 ? spec.fan_in : spec.shape.back());
  const bool plain = options.scheme == InitScheme::plain, titan = options.scheme == InitScheme::torchtitan;
  switch (spec.fill) {
    case Fill::ones: return {Numbers::Kind::constant, 1};
    case Fill::zeros: return {Numbers::Kind::constant, 0};
    case Fill::bias:
      if (plain) break;
      return {Numbers::Kind::constant, 0};
    case Fill::embedding: return {Numbers::Kind::normal, plain || titan ? 1 : options.range};
    case Fill::weight:
    case Fill::residual_weight: break;
  }
  if (plain) return {Numbers::Kind::uniform, 1 / std::sqrt(fan_in)};
  if (titan && name == "head.weight") return {Numbers::Kind::cut_normal, 1 / std::sqrt(fan_in)};
  Numbers numbers{Numbers::Kind::normal,
                  spec.fill == Fill::residual_weight ? residual_range(name, options) : options.range};
  if (titan && name.ends_with("mlp.gate_up.weight")) {  // rows of the gate, then of the up projection
    numbers.split = spec.shape[0] / 2 * spec.shape[1];
    numbers.scale_after = residual_range(name, options);
  }
  return numbers;
}

/// The initial values of one box of the full parameter, as a tensor in f64.
at::Tensor box_numbers(const Box& box, const Shape& whole, const RandomStream& stream,
                       const std::function<RandomStream(int)>& again, const Numbers& numbers) {
  std::vector<std::int64_t> sizes;
  for (const Range& range : box) sizes.push_back(range.size());
  at::Tensor out = at::empty(sizes, at::kDouble);
  if (out.numel() == 0) return out;
  const std::int64_t run = box.empty() ? 1 : box.back().size(), runs = out.numel() / run;
  double* data = out.data_ptr<double>();
  kernels::over_parts(runs, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      // Offset of run r in the full parameter: its index in the outer dims of the box, the last one varying fastest.
      std::int64_t rest = r, first = 0, stride = 1;
      for (std::size_t dim = box.size(); dim-- > 0;) {
        const bool inner = dim + 1 == box.size();
        const std::int64_t index = box[dim].begin + (inner ? 0 : rest % box[dim].size());
        if (!inner) rest /= box[dim].size();
        first += index * stride;
        stride *= whole[dim];
      }
      numbers.fill(stream, again, first, data + r * run, run);
    }
  });
  return out;
}

}  // namespace

InitScheme parse_init_scheme(std::string_view name) {
  if (name == "gpt2") return InitScheme::gpt2;
  if (name == "llama") return InitScheme::llama;
  if (name == "depth") return InitScheme::depth;
  if (name == "torchtitan") return InitScheme::torchtitan;
  if (name == "plain") return InitScheme::plain;
  throw ConfigError(text("init scheme \"", name, "\": must be gpt2, llama, depth, torchtitan or plain"));
}

void init_parameters(torch::nn::Module& root, const ParamMesh& mesh, const InitOptions& options) {
  set_paths(root);
  std::vector<Param> declared;
  for (Param& param : params_of(root))
    if (param.declared) declared.push_back(std::move(param));
  fill_params(declared, random_values(mesh, options));
}

ParamValues random_values(const ParamMesh& mesh, const InitOptions& options) {
  return [mesh, options](const Param& param, Range range, const at::Tensor& out) {
    const RandomStream stream(options.seed, "init " + param.name);
    const auto again = [&](int times) {
      return RandomStream(options.seed, text("init ", param.name, " again ", times));
    };
    const Numbers numbers = numbers_for(param.name, param.spec, options);
    read_by_boxes(param, mesh, range, out, [&](const Box& global, at::Tensor into) {
      into.copy_(box_numbers(global, param.spec.shape, stream, again, numbers));
    });
  };
}

}  // namespace trireme
