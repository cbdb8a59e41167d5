#pragma once
// Gradients against differences, over ranks: a test aid that knows what is replicated and what varies.
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/group.hpp"

namespace trireme {

/// What a tensor is over the ranks of a group (differentiable.hpp): alike on all of them, or each rank's own.
enum class Across { replicated, varying };

struct GradcheckInput {
  std::string name;
  at::Tensor value;  // fp64
  Across across = Across::varying;
};

struct GradcheckOptions {
  int directions = 3;       // random ones, of each input (of each rank, where it varies)
  double step = 1e-6;       // of the central difference, in f64
  double tolerance = 1e-6;  // relative
  std::uint64_t seed = 0;
};

struct GradcheckResult {
  bool ok = true;
  int comparisons = 0;
  double worst = 0;     // relative error
  std::string failure;  // the first: input, rank, direction and both numbers; empty when ok

  explicit operator bool() const { return ok; }
};

/// Compares what backward() gives for the inputs of `loss`, which returns one number, with central differences of the
/// loss of the whole group:
///   the loss        replicated: any rank's (all must have the same), counted once;  varying: the sum over the ranks
///   an input        replicated: moved on all ranks together, and every rank must have the whole gradient;
///                   varying: moved on one rank at a time, which must have its gradient
/// All ranks call it together, and all get the same result. `loss` may be called many times and must not depend on
/// anything that changes between calls.
///
/// The error is relative to the largest of both numbers and 1 % of the loss: rounding of the loss alone makes a
/// difference of about 1e-10 times the loss.
GradcheckResult gradcheck(Group& group, const std::function<at::Tensor(const std::vector<at::Tensor>&)>& loss,
                          const std::vector<GradcheckInput>& inputs, Across loss_is,
                          const GradcheckOptions& options = {});

/// Normal numbers in fp64 that depend on seed and purpose alone: alike on all ranks that ask alike. Not from libtorch's
/// generator, which ranks as threads share.
at::Tensor normal_tensor(at::IntArrayRef sizes, std::uint64_t seed, std::string_view purpose);

}  // namespace trireme
