#pragma once
// Which samples a step sees: a function of the plan, the seed and the step, not of the ranks. docs/data/sampling.md
#include <cstdint>
#include <vector>

#include "trireme/data/sampling/mixture.hpp"
#include "trireme/data/sampling/sampling_plan.hpp"
#include "trireme/data/sampling/windows.hpp"

namespace trireme::data {

/// seq_len + 1 tokens of a source. For as long as the sampler lives that it comes from.
struct Sample {
  const TokenSource* tokens = nullptr;  // null: padding, which counts in no loss
  std::int64_t first_token = 0;
  std::int64_t row = 0;    // its number in the step's global batch (in the validation set), alike on every layout
  std::size_t source = 0;  // place in sources_of(plan)
  std::int64_t epoch = 0;  // passes over this source before this one
  std::int64_t window = 0;
  bool operator==(const Sample&) const = default;
};

/// How far a run has come: what a checkpoint stores of its data. Everything else follows from the plan.
struct DataPosition {
  std::int64_t step = 0;                    // the last that is finished
  std::vector<std::int64_t> consumed = {};  // samples taken in each data stage that has begun
  bool operator==(const DataPosition&) const = default;
};

/// Which rows of a global batch a dp rank works on: row (m dp + r) mbs + i is sample i of microbatch m of rank r. So a
/// step has the same samples for every dp, and n ranks with a microbatch each see the microbatches of one that has n.
class BatchSplit {
 public:
  /// ConfigError where global_batch_size is not micro_batch_size x dp x a whole number.
  BatchSplit(std::int64_t global_batch_size, std::int64_t micro_batch_size, std::int64_t dp = 1,
             std::int64_t dp_rank = 0);

  std::int64_t num_microbatches() const { return num_microbatches_; }
  Range rows(std::int64_t microbatch) const;

 private:
  std::int64_t micro_batch_size_, dp_, dp_rank_, num_microbatches_;
};

/// Immutable: one object serves all threads. It keeps no list of samples; a step far away costs what the next one does.
class Sampler {
 public:
  /// `from`: where a checkpoint says that the run was. The steps up to there were made with any batch sizes; those
  /// behind it with the plan's. ConfigError and DataError name what is wrong with the plan or a source, CheckpointError
  /// a position that cannot have been reached with the plan's stages.
  explicit Sampler(SamplingPlan plan, DataPosition from = {});

  /// The rows of a step behind the position the sampler starts from; steps are counted from 1.
  std::vector<Sample> samples(std::int64_t step, Range rows) const;
  std::int64_t seq_len(std::int64_t step) const;
  std::int64_t global_batch_size() const { return plan_.global_batch_size; }

  /// Where the run is when `step` is finished.
  DataPosition position(std::int64_t step) const;

  /// Windows of a pass over a source (by place in sources_of) in the stage of `step`; 0 where it is not used.
  std::int64_t windows_per_epoch(std::int64_t step, std::size_t source) const;

 private:
  struct Order {  // of a source in a stage
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
  /// Draws of a stage when the next one starts.
  std::int64_t draws_of(std::size_t stage) const;
  Stage make_stage(std::size_t number, const std::vector<SharedTokens>& sources) const;
  void check_position() const;

  SamplingPlan plan_;
  DataPosition from_;
  std::vector<Stage> stages_;
};

}  // namespace trireme::data
