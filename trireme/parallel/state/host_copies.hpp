#pragma once
// Copies of tensors of any device in host memory, for files.
#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

namespace trireme {

/// Used by one thread, which need not be the one that created it. On a GPU copies are made on a stream of their own,
/// after everything that the device had to do when this was created.
class HostCopies {
 public:
  /// `device`: of most tensors. Those of another one are copied without the stream.
  explicit HostCopies(std::optional<at::Device> device);

  /// Contiguous; valid until the next call. At most checkpoint::kMaxSliceBytes.
  at::Tensor of(const at::Tensor& values);

 private:
  std::optional<at::Device> device_;  // of a GPU
  std::shared_ptr<c10::Event> ready_;
  std::optional<c10::Stream> stream_;
  at::Tensor pinned_;
};

}  // namespace trireme
