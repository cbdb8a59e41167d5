#pragma once
// Training of a byte-level BPE tokenizer from word counts.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/data/tokenizer/bpe.hpp"
#include "trireme/data/tokenizer/fast_split.hpp"
#include "trireme/data/tokenizer/word_counts.hpp"

namespace trireme::data {

struct BpeTrainOptions {
  std::int64_t vocab_size = 32'000;
  KnownPattern pattern = KnownPattern::llama3;  // pre-tokenizer that splits text into words
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
  std::uint64_t min_frequency = 0;  // less frequent pairs are not merged
};

struct TrainedBpe {
  BpeTrainOptions options;
  std::vector<std::string> tokens;  // by id: special tokens, the 256 bytes, then merged tokens, as bytes
  std::vector<Merge> merges;        // in order
};

/// Adds the words of `text`, as split by `pattern`.
void count_words(std::string_view text, KnownPattern pattern, WordCounts& counts);

/// Merges the most frequent pair next; ties go to the smaller left token, then the smaller right one, as in the
/// reference: the same corpus gives the same merges there, here, and with any number of threads. `progress` is called
/// occasionally with the number of tokens so far. ConfigError if vocab_size is too small for bytes and special tokens.
TrainedBpe train_bpe(
    const WordCounts& counts, const BpeTrainOptions& options,
    const std::function<void(std::int64_t)>& progress = [](std::int64_t) {});

/// Serializes to a tokenizer.json that Hugging Face's library can also load.
std::string tokenizer_json(const TrainedBpe& trained);

}  // namespace trireme::data
