#pragma once
// Which tokens a forward sees, in numbers that do not depend on the layout: what dropout and positions need.
#include <cstdint>
#include <functional>
#include <string>

#include <ATen/core/Tensor.h>

namespace trireme {

/// The tokens of a microbatch are `batch` samples of `length` tokens, one after the other: T = batch * length.
struct ForwardContext {
  std::uint64_t seed = 0;  // run.seed
  std::int64_t step = 0;
  bool training = true;
  std::int64_t batch = 0, length = 0;
  std::int64_t whole_length = 0;  // of a sample over all cp ranks
  at::Tensor samples_T;           // i64: number of each token's sample in the step, alike on every layout
  at::Tensor positions_T;         // i64: place of each token in its sample

  /// Told what every module of the residual stream puts out, by its full name: for comparing two runs.
  std::function<void(const std::string& path, const at::Tensor& x_t)> probe = {};

  std::int64_t tokens() const { return batch * length; }
  /// A number of its own for every token of the step.
  at::Tensor rows_T() const { return samples_T * whole_length + positions_T; }
};

/// FullTensor samples, numbered from `first_sample`.
ForwardContext whole_samples(std::int64_t batch, std::int64_t length, std::int64_t first_sample = 0,
                             at::Device device = at::kCPU);

}  // namespace trireme
