#pragma once
// Parameters, gradients and optimizer states of a model over the ranks that see other tokens, as one thing: what a
// training loop talks to.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/zero/grad_norm.hpp"
#include "trireme/zero/grad_reducer.hpp"
#include "trireme/zero/pending_update.hpp"
#include "trireme/zero/sharded_optimizer.hpp"
#include "trireme/zero/sharded_params.hpp"

namespace trireme {

/// The parameters of one chunk whose gradients are summed over one group, with all that belongs to them.
struct ZeroPart {
  ZeroPart(std::vector<Param> trained, UnitPlan units, const ParamMesh& mesh, const ZeroOptions& options,
           const std::shared_ptr<const Optimizer>& update, const UpdateOptions& update_options,
           const ShardedParams::Fill& fill);

  Partition partition;
  ShardedParams params;
  GradReducer gradients;
  GradNorm norm;
  ShardedOptimizer optimizer;
};

/// The part of a model that one pipeline chunk is; without pipelines, the model.
struct ModelChunk {
  std::vector<Param> params;
  UnitPlan units = {};
};

/// A chunk's parts, one for each group that sums gradients, in the order in which the model registers the first of
/// each. Chunks have their own microbatches, and their own last one. A model that has units visits them through this.
class ZeroChunk final : public UnitHooks {
 public:
  explicit ZeroChunk(std::vector<std::unique_ptr<ZeroPart>> parts) : parts_(std::move(parts)) {}

  /// Around the backward of a microbatch; `last`: of this step, in this chunk.
  void begin_microbatch(bool last);
  void end_microbatch();
  /// Where weight gradients are computed apart (zero-bubble schedules): around the backward that computes the gradients
  /// of the inputs; then, between begin_microbatch and end_microbatch, run_deferred.
  void begin_deferral(int microbatch);
  void end_deferral();
  void run_deferred(int microbatch);

  void before_forward(std::size_t unit) override;
  void after_forward(std::size_t unit) override;
  void before_backward(std::size_t unit) override;

  const std::vector<std::unique_ptr<ZeroPart>>& parts() const { return parts_; }

 private:
  const std::vector<std::unique_ptr<ZeroPart>> parts_;
};

///   for each microbatch:  chunk.begin_microbatch(is_last);  forward;  backward;  chunk.end_microbatch();
///   zero.finish_gradients();  mesh.end_step();  zero.update({.lr = ...}).settle();
/// For a model that has no units, finish_gathers() before the next forward.
class Zero {
 public:
  /// Parameters that need no gradient are left out. ConfigError names what does not fit.
  Zero(std::vector<ModelChunk> chunks, Mesh& mesh, const ZeroOptions& options, const UpdateOptions& update,
       const ShardedParams::Fill& fill = {});
  /// A model that is one chunk.
  Zero(std::vector<Param> params, UnitPlan units, Mesh& mesh, const ZeroOptions& options, const UpdateOptions& update,
       const ShardedParams::Fill& fill = {});

  std::size_t num_chunks() const { return chunks_.size(); }
  ZeroChunk& chunk(std::size_t c = 0) { return *chunks_[c]; }
  /// The parts of all chunks.
  const std::vector<ZeroPart*>& parts() const { return parts_; }

  /// Waits for the sums of all gradients. After it a step has no communication left that depends on the model, so that
  /// Mesh::end_step() may compare the calls of the ranks.
  void finish_gradients();
  /// All kept buckets are whole when it returns.
  void finish_gathers();

  struct Update {
    double lr = 0;
    double max_norm = 0;    // 0: no clipping
    double loss_scale = 1;  // what the loss was multiplied by
  };
  /// Clips and updates, after finish_gradients().
  PendingUpdate update(const Update& update);

  /// The norm of all summed gradients, 0-dim, f64, on the device: every element counted once. A call of all ranks.
  at::Tensor grad_norm();
  /// After grad_norm(): the parameters of this rank whose gradient is not finite, in the order of backward.
  std::vector<std::string> not_finite() const;
  /// Called with every gradient of a microbatch before it is added: for looking at.
  void on_gradient(const std::function<void(const Param&, const at::Tensor&)>& f);

  // Of a model with one part: InternalError for others.
  ZeroPart& part() const;
  const Partition& partition() const { return part().partition; }
  ShardedParams& params() const { return part().params; }
  GradReducer& gradients() const { return part().gradients; }
  ShardedOptimizer& optimizer() const { return part().optimizer; }

 private:
  Mesh& mesh_;
  std::vector<std::unique_ptr<ZeroChunk>> chunks_;
  std::vector<ZeroPart*> parts_;
  bool gradients_finished_ = false;
};

}  // namespace trireme
