#pragma once
// Which samples a step sees: a function of the plan, the seed and the step, independent of the ranks.
// docs/data/sampling.md
#include <cstdint>
#include <vector>

#include "trireme/data/sampling/mixture.hpp"
#include "trireme/data/sampling/sampling_plan.hpp"
#include "trireme/data/sampling/windows.hpp"

namespace trireme::data {

/// seq_len + 1 tokens of a source. Valid while the sampler that returned it is alive.
struct Sample {
  const TokenSource* tokens = nullptr;  // null: padding, with loss mask 0
  std::int64_t first_token = 0;
  std::int64_t row = 0;    // index in the step's global batch (or in the validation set), the same on every layout
  std::size_t source = 0;  // index in sources_of(plan)
  std::int64_t epoch = 0;  // number of completed passes over this source
  std::int64_t window = 0;
  std::int64_t num_tokens = -1;  // that are of the source, and then padding; -1: all
  bool operator==(const Sample&) const = default;
};

/// The data position that a checkpoint stores. Everything else follows from the plan.
struct DataPosition {
  std::int64_t step = 0;                    // the last finished step
  std::vector<std::int64_t> consumed = {};  // samples consumed in each data stage that has started
  bool operator==(const DataPosition&) const = default;
};

/// The rows of a global batch that a dp rank processes: row (m dp + r) mbs + i is sample i of microbatch m of rank r.
/// So a step has the same samples for every dp, and n ranks with one microbatch each see the microbatches of one rank
/// with n.
class BatchSplit {
 public:
  /// ConfigError if global_batch_size is not a multiple of micro_batch_size x dp.
  BatchSplit(std::int64_t global_batch_size, std::int64_t micro_batch_size, std::int64_t dp = 1,
             std::int64_t dp_rank = 0);

  std::int64_t num_microbatches() const { return num_microbatches_; }
  Range rows(std::int64_t microbatch) const;

 private:
  std::int64_t micro_batch_size_, dp_, dp_rank_, num_microbatches_;
};

/// Immutable, so it can be shared by threads. It stores no list of samples; random access to any step costs the same.
class Sampler {
 public:
  /// `from`: the position stored in a checkpoint. Steps up to there may have used any batch sizes; later ones use the
  /// plan's. Throws ConfigError or DataError for an invalid plan or source, CheckpointError for a position that is
  /// impossible with the plan's stages.
  explicit Sampler(SamplingPlan plan, DataPosition from = {});

  /// The given rows of a step after the sampler's start position; steps are counted from 1.
  std::vector<Sample> samples(std::int64_t step, Range rows) const;
  std::int64_t seq_len(std::int64_t step) const;
  std::int64_t global_batch_size() const { return plan_.global_batch_size; }

  /// The position after `step` is finished.
  DataPosition position(std::int64_t step) const;

  /// Windows per pass over a source (index in sources_of) in the stage of `step`; 0 if it is not used.
  std::int64_t windows_per_epoch(std::int64_t step, std::size_t source) const;
  /// Documents of all stages and sources that are longer than a sample, where samples hold whole documents.
  std::int64_t num_cut_documents() const;

 private:
  struct Order {  // sample order of a source in a stage
    const TokenSource* tokens;
    std::size_t source;
    RandomStream shuffle;
    Windows windows;
    std::int64_t draws_before;  // in earlier stages
  };
  struct Stage {
    std::int64_t start_step, seq_len;
    std::int64_t origin_step, origin_draws;  // draws of the stage before that step
    Mixture mixture;
    std::vector<Order> orders;
  };

  std::size_t stage_at(std::int64_t step) const;
  std::int64_t draws_before(std::size_t stage, std::int64_t step) const;
  /// The number of draws of a stage when the next one starts.
  std::int64_t draws_of(std::size_t stage) const;
  Stage make_stage(std::size_t number, const std::vector<SharedTokens>& sources) const;
  void check_position() const;

  SamplingPlan plan_;
  DataPosition from_;
  std::vector<Stage> stages_;
};

}  // namespace trireme::data
