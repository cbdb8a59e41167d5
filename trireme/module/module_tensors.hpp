#pragma once
// The parameters and buffers of a module over the ranks of a group.
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "trireme/comm/group.hpp"
#include "trireme/layout/split.hpp"

namespace trireme {

/// What becomes of buffers, such as the running statistics of batch norms, that every rank changes by itself.
enum class BufferSync {
  broadcast,  // after backward all have those of rank 0
  average,    // floating-point buffers become their mean, others those of rank 0
  local,      // nothing
};

/// How gradients of the ranks are combined. mean: for a loss that is a mean over the rank's part of the batch, if all
/// parts are equal. sum: for one that is divided by the size of the whole batch; with data_parallel gradients must then
/// be zero before each backward that reduces, except for microbatches with no_sync().
enum class GradientScale { mean, sum };

inline Reduce reduction_of(GradientScale gradients) {
  return gradients == GradientScale::mean ? Reduce::avg : Reduce::sum;
}

struct NamedTensor {
  std::string name;
  at::Tensor value;
};

/// A tensor of this rank that an optimizer updates as one, and the parts of parameters in it: a parameter itself, or a
/// flat shard of several.
struct KeptTensor {
  struct Part {
    std::string name;                 // of the parameter
    std::vector<std::int64_t> sizes;  // of all of it
    Range range;                      // the elements that are here, in row-major order
    std::int64_t offset = 0;          // of the first of them in the tensor
  };
  at::Tensor tensor;
  std::vector<Part> parts;
};

/// Each parameter once, in the order of registration.
std::vector<NamedTensor> distinct_parameters(const torch::nn::Module& module);

/// A tensor of this shape in the memory of `memory`, a contiguous one, from an element on. Not a view: torch's
/// optimizers detach gradients in place, which no view can be.
at::Tensor tensor_in(const at::Tensor& memory, std::int64_t begin, at::IntArrayRef sizes);

/// ConfigError if names, shapes, dtypes or requires_grad of parameters and buffers differ between ranks. `function`:
/// who asks, for the message.
void require_same_module(const torch::nn::Module& module, Group& group, at::Device device, const std::string& function);

/// All ranks get what rank 0 has.
void broadcast_all(const std::vector<at::Tensor>& tensors, Group& group);

/// All become their mean over the ranks.
void average_all(const std::vector<at::Tensor>& tensors, Group& group);

void sync_buffers(const std::vector<at::Tensor>& buffers, BufferSync how, Group& group);

}  // namespace trireme
