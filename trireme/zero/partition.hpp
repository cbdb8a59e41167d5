#pragma once
// Where every parameter stands in the flat buckets, and which ranks keep which part of a bucket. Arithmetic and groups:
// nothing is allocated or sent here.
#include <cstdint>
#include <functional>
#include <vector>

#include "trireme/comm/param_mesh.hpp"
#include "trireme/layout/flat_layout.hpp"
#include "trireme/nn/layer.hpp"
#include "trireme/nn/unit.hpp"
#include "trireme/zero/zero_options.hpp"

namespace trireme {

/// Of parameters whose gradients are summed over one group. Buckets follow the order of backward: what a model
/// registers last comes first. An embedding is alone in its bucket, and so is a tied parameter, whose gradient is
/// summed over the tie first.
///   stages 0-2  buckets by size
///   stage 3     the parameters of a unit are a bucket, which is gathered and freed; those up to
///               persistence_threshold stand in buckets by size at the end, and are kept
///
/// The ranks of the sum group (dp x cp for dense parameters) see other tokens and hold the same parameters. They are
/// `replicas` groups of `shards` ranks: a bucket is cut into as many parts as there are shards. Stage 0 is one shard,
/// and all of them are replicas.
class Partition {
 public:
  /// Whether a parameter must lie within one shard (Optimizer::needs_whole).
  using NeedsWhole = std::function<bool(const Param&)>;
  /// `params` in the order of their registration, all with one sum group. `units` may be empty below stage 3, and may
  /// have parameters of other partitions. ConfigError names what does not fit: dtypes or devices that differ, a number
  /// of replicas that does not divide, a parameter in no unit.
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

  /// Whether the bucket's parameters are there only while they are used.
  bool comes_and_goes(std::size_t b) const { return b < freed_buckets_; }
  const std::vector<std::size_t>& buckets_of_unit(std::size_t unit) const { return buckets_of_unit_[unit]; }

  at::ScalarType dtype() const { return params_[0].value.scalar_type(); }
  at::TensorOptions tensor_options() const { return params_[0].value.options().requires_grad(false); }
  std::int64_t num_elements() const;  // of parameters, without padding

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
