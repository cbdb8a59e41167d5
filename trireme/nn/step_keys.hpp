#pragma once
// Numbers that differ from step to step, in memory of the device: a CUDA graph reads them there.
#include <cstdint>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>

namespace trireme {

/// The purposes of dropout masks (kernels::DropoutKey), one slot for each layer that drops.
class StepKeys {
 public:
  explicit StepKeys(at::Device device);
  /// The slot of a layer. The first call of a layer is before the capture is over.
  const std::int64_t* slot(const std::string& path);
  /// Enqueues the purposes of this step.
  void set_step(std::int64_t step);

 private:
  at::Tensor device_;
  std::map<std::string, std::int64_t> slots_;
};

/// The purpose of the masks of a layer in a step.
std::uint64_t dropout_purpose(const std::string& path, std::int64_t step);

}  // namespace trireme
