#pragma once
// Data parallelism for any torch::nn::Module: each rank has a part of the batch, and gradients are those of the whole.
#include <memory>

#include <torch/nn/module.h>

#include "trireme/comm/group.hpp"
#include "trireme/module/module_tensors.hpp"

namespace trireme {

struct DataParallelOptions {
  double bucket_mb = 25;  // gradients are reduced in buckets of this size (1e6 bytes)
  GradientScale gradients = GradientScale::mean;
  BufferSync buffers = BufferSync::broadcast;
};

/// Gradients of a module over the ranks of a group. After backward() every parameter has its reduced gradient, and any
/// torch optimizer makes the same update on all ranks:
///
///   const DataParallel parallel(*net, group);   // all ranks start with the weights and buffers of rank 0
///   ...
///   optimizer.zero_grad();
///   loss(net->forward(x), y).backward();
///   optimizer.step();
///
/// Buckets are reduced during backward, in the reverse order of registration. A parameter that a rank does not use has
/// a gradient of zero there; one that no rank uses keeps what it has. Sparse gradients (torch::nn::Embedding with
/// sparse(true)) stay sparse. Every rank must call backward() equally often, on a loss that depends on some parameter.
/// Gradients are reduced as long as this object exists; hooks that others have set on the parameters stay. A parameter
/// that is added or unfrozen later is a ConfigError of the next backward(): make the DataParallel afterwards.
class [[nodiscard]] DataParallel {
 public:
  /// Collective. `module` is not kept; its parameters are. ConfigError if it has no parameters that need a gradient, if
  /// the modules of two ranks differ, if a parameter belongs to another DataParallel, or is on the CPU and the group is
  /// over NCCL.
  DataParallel(torch::nn::Module& module, Group& group, const DataParallelOptions& options = {});
  ~DataParallel();
  DataParallel(DataParallel&&) noexcept;
  DataParallel& operator=(DataParallel&&) = delete;

  /// While it exists, backward() adds to the gradients of this rank only: for the microbatches before the last.
  class [[nodiscard]] NoSync {
   public:
    explicit NoSync(const DataParallel& parallel);
    ~NoSync() { syncs_ = before_; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    bool& syncs_;
    const bool before_;
  };
  NoSync no_sync() const { return NoSync(*this); }

  /// Buckets whose reduction began before the end of the last backward: a measure of overlap.
  int sent_during_backward() const;

 private:
  class Reducer;
  std::unique_ptr<Reducer> reducer_;
};

/// The same for those who prefer a function: `auto parallel = data_parallel(net, group);`
template <class Module>
[[nodiscard]] DataParallel data_parallel(const torch::nn::ModuleHolder<Module>& module, Group& group,
                                         const DataParallelOptions& options = {}) {
  return DataParallel(*module.ptr(), group, options);
}

}  // namespace trireme
