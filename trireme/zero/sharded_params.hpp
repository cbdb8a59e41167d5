#pragma once
// The parameters in flat buckets: whole on every rank, or (stage 3) only while they are used.
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "trireme/comm/pending.hpp"
#include "trireme/zero/partition.hpp"

namespace trireme {

/// Parameters become views of their bucket. What the update changes is this rank's part, shard(b); then the parts have
/// to come together again:
///   kept buckets             gather_after_step(); the next forward waits for a bucket where it first needs it
///   buckets that come and go gathered before a unit's forward, freed after it, gathered again before its backward and
///                            freed when all its gradients are there. The next unit's gather runs under this one's
///                              maths
class ShardedParams {
 public:
  /// `fill` writes the initial values of one bucket's parameters after the other, so that no rank ever holds all of
  /// them in stage 3. Without it the values stay as they are.
  using Fill = std::function<void(const std::vector<Param>&)>;
  explicit ShardedParams(const Partition& partition, const Fill& fill = {});
  ~ShardedParams();
  ShardedParams(const ShardedParams&) = delete;
  ShardedParams& operator=(const ShardedParams&) = delete;

  const Partition& partition() const { return partition_; }
  /// This rank's part of bucket b.
  at::Tensor shard(std::size_t b) const { return shards_[b]; }

  void gather_after_step(std::size_t b);
  /// All kept buckets are whole when it returns.
  void finish_gathers();

  void before_forward(std::size_t unit);
  void after_forward(std::size_t unit);
  void before_backward(std::size_t unit);
  /// All gradients of the bucket are there: nobody needs its parameters any more.
  void backward_done(std::size_t b);
  /// At the end of a microbatch, for units whose gradients did not all come.
  void free_all();

  /// f() while bucket b is whole. A call of all ranks.
  void with_whole(std::size_t b, const std::function<void()>& f);

  /// Elements of buckets that come and go: there now, and the most there ever were.
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
  std::vector<std::size_t> backward_;            // units in the order in which backward asks for them
  std::size_t forward_place_ = 0, backward_place_ = 0;
  std::int64_t live_ = 0, most_live_ = 0;
};

}  // namespace trireme
