#pragma once
// The samples that a run is judged by: always the same, in the same order, each once.
#include <cstdint>
#include <vector>

#include "trireme/data/sampling/sampler.hpp"

namespace trireme::data {

/// The windows that training holds out, source after source, each from its beginning; or all windows of files that
/// training does not see. Their number need not be divisible by anything: the last batch is filled up with padding,
/// samples without tokens that count in no loss.
class ValidationSet {
 public:
  /// What `plan` holds out. `max_samples` of each source, spread evenly over it; 0: all.
  /// DataError where a source has nothing to give.
  ValidationSet(const SamplingPlan& plan, std::int64_t seq_len, std::int64_t max_samples = 0);
  /// All of these.
  ValidationSet(const std::vector<SharedTokens>& sources, std::int64_t seq_len, std::int64_t max_samples = 0);

  std::int64_t size() const { return size_; }
  std::int64_t seq_len() const { return seq_len_; }

  /// Batches that each of `dp` ranks has to run, the same number on every rank.
  std::int64_t num_batches(std::int64_t micro_batch_size, std::int64_t dp = 1) const;
  /// Rank r's batch b has samples (b dp + r) mbs ... + mbs - 1, as a microbatch in training.
  std::vector<Sample> samples(std::int64_t batch, std::int64_t micro_batch_size, std::int64_t dp = 1,
                              std::int64_t dp_rank = 0) const;
  /// Padding where i is not below size().
  Sample at(std::int64_t i) const;

 private:
  struct Part {
    SharedTokens tokens;
    std::size_t source;
    Windows windows;
    std::int64_t first_sample, num_samples;
  };
  void add(const SharedTokens& tokens, std::size_t source, const std::vector<Range>& parts, std::int64_t max_samples);

  std::vector<Part> parts_;
  std::int64_t seq_len_, size_ = 0;
};

}  // namespace trireme::data
