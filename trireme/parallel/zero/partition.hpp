#pragma once
// The offset of every parameter in the flat buckets, and which ranks own which shard of a bucket. Only layout and
// groups: no allocation, no communication.
#include <cstdint>
#include <functional>
#include <vector>

#include "trireme/comm/param_mesh.hpp"
#include "trireme/layout/flat_layout.hpp"
#include "trireme/nn/layer.hpp"
#include "trireme/nn/unit.hpp"
#include "trireme/parallel/zero/zero_options.hpp"

namespace trireme {

/// For parameters whose gradients are summed over the same group. Buckets are in backward order, the reverse of
/// registration. An embedding has its own bucket.
///   stages 0-2  buckets by size
///   stage 3     one bucket per unit, gathered and freed as a whole; parameters up to persistence_threshold are in
///               buckets by size at the end, which are never freed
/// A tied parameter is alone in its bucket in every stage, so that all ranks that share it have the same shards.
///
/// The ranks of the sum group (dp x cp for dense parameters) see different tokens and hold the same parameters. They
/// form `replicas` groups of `shards` ranks: each bucket is split into `shards` shards. In stage 0 there is one shard,
/// and all ranks are replicas.
class Partition {
 public:
  /// Whether a parameter must lie within one shard (Optimizer::needs_whole).
  using NeedsWhole = std::function<bool(const Param&)>;
  /// `params` in registration order, all with the same sum group. `units` may be empty below stage 3, and may contain
  /// parameters of other partitions. ConfigError for mixed dtypes or devices, a number of replicas that does not divide
  /// the group, or a parameter in no unit; it names the parameter or number.
  Partition(std::vector<Param> params, UnitPlan units, const ParamMesh& mesh, const ZeroOptions& options,
            const NeedsWhole& needs_whole = {});

  const ZeroOptions& options() const { return options_; }
  const std::vector<Param>& params() const { return params_; }  // by item of the layout
  const UnitPlan& units() const { return units_; }
  const FlatLayout& layout() const { return layout_; }
  std::size_t num_buckets() const { return layout_.buckets.size(); }
  const FlatBucket& bucket(std::size_t b) const { return layout_.buckets[b]; }
  std::size_t bucket_of(std::size_t item) const { return bucket_of_[item]; }
  std::int64_t offset_of(std::size_t item) const { return offset_of_[item]; }  // in its bucket

  const ParamMesh& mesh() const { return mesh_; }
  Group& shards() const { return *shards_; }
  Group& replicas() const { return *replicas_; }
  Range own(std::size_t b) const { return layout_.shard(b, shards_->rank()); }
  std::vector<FlatPiece> own_pieces(std::size_t b) const { return layout_.pieces(b, shards_->rank()); }

  /// Whether the bucket is gathered for use and freed afterwards (stage 3).
  bool comes_and_goes(std::size_t b) const { return b < freed_buckets_; }
  const std::vector<std::size_t>& buckets_of_unit(std::size_t unit) const { return buckets_of_unit_[unit]; }

  at::ScalarType dtype() const { return params_[0].value.scalar_type(); }
  /// The dtype of the parameters, and the device where they are kept.
  at::TensorOptions tensor_options() const {
    const at::TensorOptions of_model = params_[0].value.options().requires_grad(false);
    return options_.device ? of_model.device(*options_.device) : of_model;
  }
  std::int64_t num_elements() const;  // without padding

 private:
  FlatGroups make_groups(const std::vector<FlatItem>& items);
  void make_rank_groups();
  void check() const;

  const ZeroOptions options_;
  UnitPlan units_;
  const ParamMesh mesh_;
  std::vector<Param> params_;
  std::vector<std::size_t> unit_of_;  // by item; empty without units
  FlatLayout layout_;
  std::vector<std::size_t> bucket_of_;  // by item
  std::vector<std::int64_t> offset_of_;
  std::vector<std::vector<std::size_t>> buckets_of_unit_;
  std::size_t freed_buckets_ = 0;
  Group *shards_ = nullptr, *replicas_ = nullptr;
};

}  // namespace trireme
