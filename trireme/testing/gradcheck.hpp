#pragma once
// Distributed gradcheck: compares gradients with finite differences, for replicated and varying tensors.
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/group.hpp"

namespace trireme {

/// How a tensor relates across the ranks of a group (differentiable.hpp): the same on all of them, or different per
/// rank.
enum class Across { replicated, varying };

struct GradcheckInput {
  std::string name;
  at::Tensor value;  // fp64
  Across across = Across::varying;
};

struct GradcheckOptions {
  int directions = 3;       // random directions per input (and per rank, if it varies)
  double step = 1e-6;       // of the central difference, in f64
  double tolerance = 1e-6;  // relative
  std::uint64_t seed = 0;
};

struct GradcheckResult {
  bool ok = true;
  int comparisons = 0;
  double worst = 0;     // relative error
  std::string failure;  // of the first one: input, rank, direction and both numbers; empty if ok

  explicit operator bool() const { return ok; }
};

/// Compares the gradients from backward() for the inputs of `loss`, which returns one number, with central differences
/// of the loss of the whole group:
///   the loss        replicated: the same on all ranks, counted once;  varying: the sum over the ranks
///   an input        replicated: perturbed on all ranks together, and every rank must have the full gradient; varying:
///                   perturbed on one rank at a time, which must have its gradient
/// Collective; all ranks get the same result. `loss` is called many times and must not depend on anything that changes
/// between calls.
///
/// The error is relative to the larger of both numbers and 1 % of the loss: rounding of the loss alone causes a
/// difference of about 1e-10 times the loss.
GradcheckResult gradcheck(Group& group, const std::function<at::Tensor(const std::vector<at::Tensor>&)>& loss,
                          const std::vector<GradcheckInput>& inputs, Across loss_is,
                          const GradcheckOptions& options = {});

/// Normal random numbers in fp64 that depend only on seed and purpose: the same on all ranks. Not from libtorch's
/// generator, which ranks that are threads share.
at::Tensor normal_tensor(at::IntArrayRef sizes, std::uint64_t seed, std::string_view purpose);

}  // namespace trireme
