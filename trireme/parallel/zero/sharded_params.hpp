#pragma once
// Parameters in flat buckets: full on every rank, or (stage 3) gathered only while in use.
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "trireme/comm/pending.hpp"
#include "trireme/parallel/zero/partition.hpp"

namespace trireme {

/// Parameters become views of their bucket. The optimizer updates this rank's shard, shard(b); after that the full
/// buckets are gathered again:
///   kept buckets   gather_kept(); the next forward waits for a bucket when it first needs it
///   freed buckets  gathered before a unit's forward, freed after it, gathered again before its backward and freed when
///                  all its gradients have arrived. The next unit is prefetched during the computation of the current
///                  one.
class ShardedParams {
 public:
  /// Keeps the current values; parameters on `meta` get memory, bucket by bucket, and are zero until they are set.
  explicit ShardedParams(const Partition& partition);
  ~ShardedParams();
  ShardedParams(const ShardedParams&) = delete;
  ShardedParams& operator=(const ShardedParams&) = delete;

  const Partition& partition() const { return partition_; }
  /// This rank's shard of bucket b.
  at::Tensor shard(std::size_t b) const { return shards_[b]; }

  /// After the shard has changed: starts the all-gather, unless the bucket is gathered for each use.
  void gather_kept(std::size_t b);
  /// On return all kept buckets are gathered.
  void finish_gathers();

  /// Before the backward of a microbatch. Without reshard_after_forward, freed buckets stay gathered until the last.
  void begin_backward(bool last) {
    keeps_ = !last && !partition_.options().reshard_after_forward;
    backward_place_ = 0;
  }
  void before_forward(std::size_t unit);
  void after_forward(std::size_t unit);
  void before_backward(std::size_t unit);
  /// On return the bucket is gathered, until backward_done() or free_all().
  void gather(std::size_t b);
  /// All gradients of the bucket have arrived: its parameters are no longer needed.
  void backward_done(std::size_t b);
  /// At the end of a microbatch, for units for which some gradients did not arrive.
  void free_all();

  /// Runs f() while bucket b is gathered. Collective: all ranks call it.
  void with_whole(std::size_t b, const std::function<void()>& f);

  /// Elements of gathered buckets that will be freed again: now, and at the peak.
  std::int64_t live() const { return live_; }
  std::int64_t most_live() const { return most_live_; }

 private:
  enum class State { absent, coming, whole };

  void start(std::size_t b);
  void arrive(std::size_t b);
  void free(std::size_t b);
  void start_unit(std::size_t unit);
  void arrive_unit(std::size_t unit);
  void start_ahead(std::size_t unit);
  bool is_kept_after_forward(std::size_t place) const;
  std::int64_t numel_of_unit(std::size_t unit) const;

  const Partition& partition_;
  std::vector<at::Tensor> wholes_, shards_;
  std::vector<State> states_;
  std::vector<std::optional<Pending>> pending_;  // by bucket
  std::vector<std::size_t> backward_;            // units in backward order
  std::size_t forward_place_ = 0, backward_place_ = 0;
  std::int64_t live_ = 0, most_live_ = 0;
  bool keeps_ = false;  // what is gathered, after the backward of this microbatch
};

}  // namespace trireme
