#pragma once
// The largest elements of tensors in past steps, from which follow their scales in fp8 in this one
// (precision.fp8_amax = "delayed"): no pass over a tensor before the one that rounds it.
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/kernels/matmul/fp8.hpp"

namespace trireme {

class Fp8History {
 public:
  /// Steps that a scale follows from: the largest element of all of them must fit.
  static constexpr std::int64_t kSteps = 16;

  explicit Fp8History(at::Device device) : device_(device) {}

  /// A tensor of a layer. All are added before the first step.
  int add(kernels::Fp8 format);

  /// Ahead of the forward of each step. The memory of scales and largest elements remains where it is. What is not
  /// finite does not count.
  void begin_step();

  /// The update of a step was skipped: what it has seen does not count from now on. `is_newest`: no other step has
  /// begun.
  void discard(bool is_newest);

  /// What a run that resumes needs to have the scales of one that goes on; empty before the first step. It is of this
  /// rank: on another layout the tensors are others.
  struct State {
    std::int64_t steps = 0;
    at::Tensor now_n{}, past_nH{};  // on the device
  };
  State state() const;
  /// Returns false, and changes nothing, if it is of other tensors.
  bool set_state(const State& state);
  /// As before the first step.
  void reset();

  /// How to round this tensor now. In the first step its own largest element decides.
  /// `records`: the history sees it; not that of a validation.
  kernels::Fp8Options options(int tensor, bool records) const;

 private:
  void allocate();
  void set_scales();

  const at::Device device_;
  std::vector<float> limits_;  // of the formats
  std::int64_t steps_ = 0;     // begun
  // n tensors: their largest elements in this step; in past ones; the limits of their formats; exponents of scales
  // before they have been seen; scales
  at::Tensor now_n_, past_nH_, limits_n_, unseen_n_, scales_n24_;
};

/// Steps, then the tensors; nothing of a state without steps. Anything else that is read is a state without steps.
std::vector<std::uint8_t> to_bytes(const Fp8History::State& state);
Fp8History::State fp8_state_from_bytes(const std::vector<std::uint8_t>& bytes);

}  // namespace trireme
