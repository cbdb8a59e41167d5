#pragma once
// ZeRO for a whole model: the sharded parameters, gradient reduction and sharded optimizer that a training loop uses.
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/name_pattern.hpp"
#include "trireme/nn/param_values.hpp"
#include "trireme/parallel/zero/grad_norm.hpp"
#include "trireme/parallel/zero/grad_reducer.hpp"
#include "trireme/parallel/zero/model_params.hpp"
#include "trireme/parallel/zero/pending_update.hpp"
#include "trireme/parallel/zero/sharded_optimizer.hpp"
#include "trireme/parallel/zero/sharded_params.hpp"
#include "trireme/parallel/zero/tied_sums.hpp"

namespace trireme {

/// How the parameters of a part are updated.
struct PartUpdate {
  std::shared_ptr<const Optimizer> optimizer;
  UpdateOptions options;
  double lr_factor = 1;
};

/// Parameters of one chunk that are updated alike and have the same gradient sum group, and their partition, reducer
/// and optimizer. Frozen ones have neither gradients nor states: their part is for forwards only.
struct ZeroPart {
  ZeroPart(std::vector<Param> params, UnitPlan units, const ParamMesh& mesh, const ZeroOptions& options,
           const PartUpdate& update, bool is_trained);

  /// Sets the weights of this rank's shards, and starts the gathers of what it keeps whole.
  void fill(const ParamValues& values);

  const bool is_trained;
  const double lr_factor;
  Partition partition;
  ShardedParams params;
  GradReducer gradients;
  GradNorm norm;
  ShardedOptimizer optimizer;
};

/// The model part of one virtual pipeline stage; without pipelines, the model.
struct ModelChunk {
  std::vector<Param> params;
  UnitPlan units = {};
  int number = 0;  // among the chunks of all pipeline ranks, in the order of the model
};

/// One part per parameter group and gradient sum group, in the order in which the model registers their first
/// parameters; then the frozen ones. Each chunk has its own microbatches and its own last microbatch. A model with
/// units calls these hooks.
class ZeroChunk final : public UnitHooks {
 public:
  ZeroChunk(std::vector<std::unique_ptr<ZeroPart>> parts, int number) : parts_(std::move(parts)), number_(number) {}

  /// Around the backward of a microbatch; `last`: the last one of this step in this chunk.
  void begin_microbatch(bool last);
  void end_microbatch();
  /// For backwards that are recorded and replayed; see GradReducer.
  void hold_back();
  void replayed();
  /// With deferred weight gradients (zero-bubble schedules): around the backward that computes only input gradients;
  /// later run_deferred, between begin_microbatch and end_microbatch.
  void begin_deferral(int microbatch);
  void end_deferral();
  void run_deferred(int microbatch);

  void before_forward(std::size_t unit) override;
  void after_forward(std::size_t unit) override;
  void before_backward(std::size_t unit) override;

  const std::vector<std::unique_ptr<ZeroPart>>& parts() const { return parts_; }
  int number() const { return number_; }  // ModelChunk::number

 private:
  const std::vector<std::unique_ptr<ZeroPart>> parts_;
  const int number_;
};

/// The trained parameters of a chunk in the order in which the model registers them, part by part.
void for_each_trained(const ZeroChunk& chunk, const std::function<void(const Param& param)>& f);

///   for each microbatch:  chunk.begin_microbatch(is_last);  forward;  backward;  chunk.end_microbatch();
///   zero.finish_gradients();  mesh.end_step();  zero.update({.lr = ...}).settle();
/// For a model without units, call finish_gathers() before the next forward.
class Zero {
 public:
  /// `values` initializes the parameters of Layers; each rank asks only for its shards. Master weights get them in
  /// their own precision. Without it, and for parameters of other modules, the current values are kept. Parameters with
  /// requires_grad = false are filled and not trained: without gradients and states, and from stage 3 on sharded and
  /// gathered like all others. ConfigError names the option or parameter that does not fit.
  Zero(std::vector<ModelChunk> chunks, Mesh& mesh, const ZeroOptions& options, const UpdateOptions& update,
       const ParamValues& values = {});
  /// For a model with a single chunk.
  Zero(std::vector<Param> params, UnitPlan units, Mesh& mesh, const ZeroOptions& options, const UpdateOptions& update,
       const ParamValues& values = {});

  std::size_t num_chunks() const { return chunks_.size(); }
  ZeroChunk& chunk(std::size_t c = 0) { return *chunks_[c]; }
  const ZeroChunk& chunk(std::size_t c = 0) const { return *chunks_[c]; }
  /// The parts of all chunks: those that are trained, then the frozen ones.
  const std::vector<ZeroPart*>& parts() const { return parts_; }
  /// Parameters that no part holds: set by a layer, of integers, or in no unit. Whole on every rank.
  const std::vector<Param>& frozen() const { return frozen_; }
  /// The states of a trained parameter of the model, on whichever rank it is: those of its group's optimizer.
  const std::vector<std::string>& state_names(const std::string& param) const;
  /// The parameters of the whole model: a section for each chunk, then the frozen ones of each pipeline rank. Copies of
  /// tied parameters are left out. In a section the parameters are in the order of for_each_trained().
  const std::vector<ParamSection>& sections() const { return sections_; }

  /// Waits for all gradient reductions. After it no communication of this step depends on the model, so that
  /// Mesh::end_step() can compare the calls of the ranks.
  void finish_gradients();
  /// On return all kept buckets are gathered.
  void finish_gathers();

  struct Update {
    double lr = 0;
    double max_norm = 0;                                          // 0: no clipping
    double loss_scale = 1;                                        // the factor that the loss was multiplied by
    double skip_above = std::numeric_limits<double>::infinity();  // nothing is updated if the norm is larger
  };
  /// Clips and updates, after finish_gradients().
  PendingUpdate update(const Update& update);

  /// The norm of all reduced gradients, 0-dim, f64, on the device: every element counted once. Collective: all ranks
  /// call it.
  at::Tensor grad_norm();
  /// After grad_norm(): the parameters of this rank with non-finite gradients, in backward order. Collective.
  std::vector<std::string> not_finite() const;
  /// Called with every gradient of a microbatch before it is accumulated, for inspection.
  void on_gradient(const std::function<void(const Param&, const at::Tensor&)>& f);

  // For a model with exactly one part; otherwise InternalError.
  ZeroPart& part() const;
  const Partition& partition() const { return part().partition; }
  ShardedParams& params() const { return part().params; }
  GradReducer& gradients() const { return part().gradients; }
  ShardedOptimizer& optimizer() const { return part().optimizer; }

 private:
  std::size_t group_of(const std::string& param) const;
  std::span<ZeroPart* const> trained() const { return {parts_.data(), num_trained_}; }

  Mesh& mesh_;
  std::vector<std::unique_ptr<ZeroChunk>> chunks_;
  std::vector<ZeroPart*> parts_;
  std::size_t num_trained_ = 0;  // of parts_, at their begin
  std::vector<Param> frozen_;
  std::vector<PartUpdate> updates_;              // by parameter group; the last one is of all others
  std::vector<std::vector<NamePattern>> names_;  // of each group
  TiedSums tied_;
  std::vector<ParamSection> sections_;
  bool gradients_finished_ = false;
};

}  // namespace trireme
