#pragma once
// The parameters and buffers of a module over the ranks of a group.
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "trireme/comm/group.hpp"

namespace trireme {

/// What becomes of buffers, such as the running statistics of batch norms, that every rank changes by itself.
enum class BufferSync {
  broadcast,  // after backward all have those of rank 0
  average,    // floating-point buffers become their mean, others those of rank 0
  local,      // nothing
};

/// How gradients of the ranks are combined. mean: for a loss that is a mean over the rank's part of the batch, if all
/// parts are equal. sum: for one that is divided by the size of the whole batch.
enum class GradientScale { mean, sum };

inline Reduce reduction_of(GradientScale gradients) {
  return gradients == GradientScale::mean ? Reduce::avg : Reduce::sum;
}

/// Writes the values of a parameter or buffer, whole and on its device.
using FillValues = std::function<void(const std::string& name, at::Tensor value)>;

struct NamedTensor {
  std::string name;
  at::Tensor value;
};

/// Each parameter once, in the order of registration.
std::vector<NamedTensor> distinct_parameters(const torch::nn::Module& module);

/// The trained parameters that a predicate chooses, each once: for the groups of an optimizer.
using ParameterPredicate = std::function<bool(const std::string& name, const at::Tensor& value)>;
std::vector<at::Tensor> parameters_if(const torch::nn::Module& module, const ParameterPredicate& predicate);

/// The weights whose gradients are sparse: a rank that does not use one has to know that, too.
std::set<const c10::TensorImpl*> sparse_parameters(const torch::nn::Module& module);

/// ConfigError for a parameter with sparse gradients. `fix`: what to do instead.
void require_dense_gradients(const torch::nn::Module& module, const std::string& function, const std::string& fix);

/// Whether there still is the ParallelContext that there was when it was made: process groups end with their context.
class ContextGuard {
 public:
  explicit ContextGuard(std::string function);
  /// ConfigError if it has ended.
  void check() const;

 private:
  std::string function_;
  int context_;
};

/// The parameters that are trained when it is made.
class KnownParameters {
 public:
  /// `function`: whose they are, for the message. A module that no shared_ptr owns is seen with what it has now.
  KnownParameters(torch::nn::Module& module, std::string function);
  /// ConfigError if others are trained since, whose gradients nobody reduces: added to the module, or unfrozen; or if
  /// the ParallelContext has ended.
  void check() const;
  const ContextGuard& context() const { return context_; }

 private:
  const std::string function_;
  const std::weak_ptr<torch::nn::Module> module_;
  std::set<const c10::TensorImpl*> trained_;
  std::vector<NamedTensor> frozen_;
  const ContextGuard context_;
};

/// Two numbers for each complex one: no backend reduces complex tensors. Others as they are.
at::Tensor as_real(const at::Tensor& x);

/// A tensor of this shape in the memory of `memory`, a contiguous one, from an element on. Not a view: torch's
/// optimizers detach gradients in place, which no view can be.
at::Tensor tensor_in(const at::Tensor& memory, std::int64_t begin, at::IntArrayRef sizes);

/// Where a module of which the first parameter is on `found` computes, if nobody says: there; but one on the CPU, or on
/// at::kMeta, on the GPU of the group, where its tensors must be (NCCL).
at::Device computing_device(at::Device found, const Group& group);

/// ConfigError for a parameter or buffer where the group takes no tensors: on the CPU, and it is over NCCL.
void require_reachable(const torch::nn::Module& module, const Group& group, const std::string& function);

/// ConfigError if names, shapes, dtypes or requires_grad of parameters and buffers differ between ranks. `function`:
/// who asks, for the message.
void require_same_module(const torch::nn::Module& module, Group& group, at::Device device, const std::string& function);

/// The norm of all gradients, which are scaled if it exceeds max_norm. `counted`: what this rank counts of them, so
/// that the ranks of the groups together count each element once. Collective.
double clip_gradients(const std::vector<at::Tensor>& gradients, const std::vector<at::Tensor>& counted, double max_norm,
                      at::Device device, const std::vector<Group*>& groups);

/// All ranks get what rank 0 has.
void broadcast_all(const std::vector<at::Tensor>& tensors, Group& group);

/// All become their mean over the ranks.
void average_all(const std::vector<at::Tensor>& tensors, Group& group);

void sync_buffers(const std::vector<at::Tensor>& buffers, BufferSync how, Group& group);

}  // namespace trireme
