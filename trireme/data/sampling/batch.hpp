#pragma once
// A microbatch of one rank in plain vectors: what a trainer turns into tensors.
#include <cstdint>
#include <span>
#include <vector>

#include "trireme/data/sampling/sampler.hpp"
#include "trireme/layout/split.hpp"

namespace trireme::data {

struct BatchOptions {
  std::int64_t vocab_size = 0;
  /// Otherwise each document of a sample is a sequence of its own, and the label behind its last token does not count:
  /// nothing that the model sees tells what the next document is.
  bool attend_across_documents = true;
  /// Positions begin again at 0 where a document begins (and at the beginning of a sample, in the middle of one too).
  bool restart_positions = false;
  int cp = 1, cp_rank = 0;
  CpSplit cp_split = CpSplit::zigzag;
};

/// b samples of S tokens, of which this cp rank has s each, in the order of tokens_over_cp. [b, s]: row by row.
struct TokenBatch {
  std::int64_t num_samples = 0;                // b
  std::int64_t seq_len = 0, local_length = 0;  // S, s
  std::vector<std::int64_t> tokens;            // [b, s]
  std::vector<std::int64_t> labels;            // [b, s]: the token behind each
  std::vector<std::uint8_t> loss_mask;         // [b, s]: 1 where the label counts
  std::vector<std::int64_t> positions;         // [b, s]
  std::vector<std::int64_t> rows;     // [b]: number of each sample in its step, alike on every layout (dropout)
  std::int64_t num_valid_labels = 0;  // sum of loss_mask

  /// Only where documents do not attend to each other: the number of each token's document in its sample, from 0. [b, s]
  std::vector<std::int32_t> documents;
  /// Where sequences that attend to themselves alone begin in the list of all b x S tokens (not cut over cp), and its
  /// length at the end: what attention over several lengths takes. FullTensor samples where documents attend to each other.
  std::vector<std::int32_t> sequence_starts;

  bool operator==(const TokenBatch&) const = default;
};

/// Makes batches from samples. Immutable: one object serves all threads.
class BatchMaker {
 public:
  explicit BatchMaker(BatchOptions options);

  /// Into `out`, whose memory is used again. DataError for a token outside of the vocabulary, wherever in a sample it
  /// is, so that all cp ranks stop. Padding has token 0 and counts in no loss.
  void make(std::span<const Sample> samples, std::int64_t seq_len, TokenBatch& out) const;

 private:
  BatchOptions options_;
};

}  // namespace trireme::data
