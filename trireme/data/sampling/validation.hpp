#pragma once
// The validation set: always the same samples, in the same order, each once.
#include <cstdint>
#include <vector>

#include "trireme/data/sampling/sampler.hpp"

namespace trireme::data {

/// The held-out windows, source after source, each from its beginning; or all windows of separate validation files.
/// Their number need not be divisible by anything: the last batch is padded with samples without tokens, whose loss
/// mask is 0.
class ValidationSet {
 public:
  /// The windows that `plan` holds out. `max_samples` per source, spread evenly over it; 0: all.
  /// DataError if a source has no window.
  /// `whole_documents`: Windows::of_documents.
  ValidationSet(const SamplingPlan& plan, std::int64_t seq_len, std::int64_t max_samples = 0,
                bool whole_documents = false);
  /// All windows of these sources.
  ValidationSet(const std::vector<SharedTokens>& sources, std::int64_t seq_len, std::int64_t max_samples = 0,
                bool whole_documents = false);

  std::int64_t size() const { return size_; }
  std::int64_t seq_len() const { return seq_len_; }

  /// Number of batches per rank, the same on every one of the `dp` ranks.
  std::int64_t num_batches(std::int64_t micro_batch_size, std::int64_t dp = 1) const;
  /// Rank r's batch b has samples (b dp + r) mbs ... + mbs - 1, like a training microbatch.
  std::vector<Sample> samples(std::int64_t batch, std::int64_t micro_batch_size, std::int64_t dp = 1,
                              std::int64_t dp_rank = 0) const;
  /// Padding if i >= size().
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
  bool whole_documents_;
};

}  // namespace trireme::data
