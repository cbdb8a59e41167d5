#pragma once
// A dataset over the ranks of a group, for a training loop of one's own: each rank gets its part of every batch.
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "trireme/comm/group.hpp"
#include "trireme/module/dataset.hpp"
#include "trireme/module/read_ahead.hpp"

namespace trireme {

/// What becomes of the samples that do not fill a batch.
enum class LastBatch {
  smaller,  // the last batch has fewer: every sample once; parts differ by at most one, and may be empty
  drop,     // they are left out of this epoch: all parts are of one size
  pad,      // the first samples of the epoch come once more: all parts are of one size
};

struct ShardOptions {
  std::int64_t batch_size = 32;  // over all ranks, at least one sample for each; for drop and pad a multiple of them
  bool shuffle = true;
  std::uint64_t seed = 0;
  LastBatch last = LastBatch::smaller;
  /// Batches that a thread of epoch() reads before they are asked for; 0: each is read when it is asked for. They are
  /// the same, unless get() of the dataset draws from libtorch's generator, which the training loop uses meanwhile.
  std::int64_t prefetch = 2;
};

/// The samples of a batch are a function of (seed, epoch, step), whatever the number of ranks: with LastBatch::smaller
/// every sample of an epoch comes once over all ranks. No state: a loop that goes on after a checkpoint begins at its
/// epoch and step.
///
///   const ShardedLoader loader = shard(dataset, group, {.batch_size = 256});
///   for (int epoch = 0; epoch < 3; ++epoch)
///     for (const Samples& batch : loader.epoch(epoch)) ...
class ShardedLoader {
 public:
  /// ConfigError for an empty dataset, a batch smaller than the group or not of equal parts where they must be, or one
  /// of which nothing is left.
  ShardedLoader(std::shared_ptr<const Dataset> dataset, const Group& group, const ShardOptions& options);

  std::int64_t steps() const { return steps_; }  // of an epoch
  /// The samples of the batch of a step over all ranks, the same in every epoch: divide a loss by it where parts may
  /// differ (GradientScale::sum).
  std::int64_t whole_batch(std::int64_t step) const;
  /// This rank's part, contiguous in the batch, as indices of the dataset.
  std::vector<std::int64_t> indices(std::int64_t epoch, std::int64_t step) const;
  Samples batch(std::int64_t epoch, std::int64_t step) const;

  class Iterator {
   public:
    /// `ahead`: the thread that reads; null: there is none.
    Iterator(const ShardedLoader& loader, std::int64_t epoch, std::int64_t step, std::shared_ptr<ReadAhead> ahead)
        : loader_(&loader), epoch_(epoch), step_(step), ahead_(std::move(ahead)) {}
    Samples operator*() const { return ahead_ ? ahead_->take(step_) : loader_->batch(epoch_, step_); }
    Iterator& operator++() {
      ++step_;
      return *this;
    }
    bool operator==(const Iterator& other) const { return step_ == other.step_; }

   private:
    const ShardedLoader* loader_;
    std::int64_t epoch_, step_;
    std::shared_ptr<ReadAhead> ahead_;
  };
  struct Epoch {
    const ShardedLoader* loader;
    std::int64_t number, first_step;
    Iterator begin() const { return loader->begin_at(number, first_step); }
    Iterator end() const { return {*loader, number, loader->steps(), nullptr}; }
  };
  /// The batches of this rank from a step on. The loader must outlive it. Each begin() has a thread of its own, which
  /// ends with its iterators; an exception of get() comes with the batch that it belongs to. Calls of get() by one
  /// loader never overlap; a dataset that another part of the program uses at the same time must allow that.
  Epoch epoch(std::int64_t epoch, std::int64_t first_step = 0) const { return {this, epoch, first_step}; }

 private:
  void check_step(std::int64_t step) const;
  Iterator begin_at(std::int64_t epoch, std::int64_t step) const;

  std::shared_ptr<const Dataset> dataset_;
  std::shared_ptr<std::mutex> reading_;  // of calls of get(); shared by copies of the loader
  int rank_, ranks_;
  LastBatch last_;
  std::int64_t prefetch_;
  EpochOrder order_;
  std::int64_t steps_;
};

inline ShardedLoader shard(std::shared_ptr<const Dataset> dataset, const Group& group,
                           const ShardOptions& options = {}) {
  return {std::move(dataset), group, options};
}

}  // namespace trireme
