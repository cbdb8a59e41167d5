#pragma once
// A microbatch of one rank in plain vectors, which the trainer copies into tensors.
#include <cstdint>
#include <span>
#include <vector>

#include "trireme/data/sampling/sampler.hpp"
#include "trireme/layout/context_split.hpp"

namespace trireme::data {

struct BatchOptions {
  std::int64_t vocab_size = 0;
  /// If false, each document of a sample is a separate sequence, and the label after its last token is masked: the
  /// model has no information about the next document.
  bool attend_across_documents = true;
  /// Positions restart at 0 at the beginning of each document (and of each sample, even in the middle of a document).
  bool restart_positions = false;
  ContextSplit context = {};
  int cp_rank = 0;
};

/// b samples of S tokens, of which this cp rank has s each, in the order of ContextSplit::tokens. [b, s] is row-major.
struct TokenBatch {
  std::int64_t num_samples = 0;                // b
  std::int64_t seq_len = 0, local_length = 0;  // S, s
  std::vector<std::int64_t> tokens;            // [b, s]
  std::vector<std::int64_t> labels;            // [b, s]: the next token of each
  std::vector<std::uint8_t> loss_mask;         // [b, s]: 1 if the label counts in the loss
  std::vector<std::int64_t> positions;         // [b, s]: what the model takes for the position of each token
  std::vector<std::int64_t> rows;     // [b]: index of each sample in its step, the same on every layout (for dropout)
  std::int64_t num_valid_labels = 0;  // sum of loss_mask

  /// Only if positions restart: the index of each token in its sample, which they are otherwise. [b, s]
  std::vector<std::int64_t> places;
  /// Only if documents do not attend to each other: the index of each token's document in its sample, from 0. [b, S]:
  /// of whole samples, because attention crosses the parts of cp.
  std::vector<std::int32_t> documents;
  /// Start offsets of the independent sequences in the list of all b x S tokens (not split over cp), and its length at
  /// the end: the cu_seqlens of variable-length attention. Whole samples if documents attend to each other.
  std::vector<std::int32_t> sequence_starts;

  bool operator==(const TokenBatch&) const = default;
};

/// Makes batches from samples. Immutable, so it can be shared by threads.
class BatchMaker {
 public:
  explicit BatchMaker(BatchOptions options);

  /// Writes into `out`, whose memory is reused. DataError for a token outside the vocabulary, anywhere in a sample, so
  /// that all cp ranks stop. Padding has token 0 and a loss mask of 0.
  void make(std::span<const Sample> samples, std::int64_t seq_len, TokenBatch& out) const;

  const BatchOptions& options() const { return options_; }

 private:
  BatchOptions options_;
};

}  // namespace trireme::data
