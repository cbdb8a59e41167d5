#pragma once
// Training a byte-level tokenizer: which pairs to merge, from how often words occur.
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
  KnownPattern pattern = KnownPattern::llama3;  // how text is cut into words
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
  std::uint64_t min_frequency = 0;  // pairs that occur less often are not merged
};

struct TrainedBpe {
  BpeTrainOptions options;
  std::vector<std::string> tokens;  // by id: special tokens, the 256 bytes, then what was merged, as bytes
  std::vector<Merge> merges;        // in order
};

/// Adds the words of `text`, as `pattern` cuts them.
void count_words(std::string_view text, KnownPattern pattern, WordCounts& counts);

/// Of the pairs that occur most often the one with the smaller left token, then the smaller right one, is merged next, as in the
/// reference: the same corpus gives the same merges there, here, and with any number of threads. `progress` is called now and then with the
/// number of tokens so far. ConfigError when vocab_size has no room for bytes and special tokens.
TrainedBpe train_bpe(
    const WordCounts& counts, const BpeTrainOptions& options,
    const std::function<void(std::int64_t)>& progress = [](std::int64_t) {});

/// As a tokenizer.json, which Hugging Face's library reads as well.
std::string tokenizer_json(const TrainedBpe& trained);

}  // namespace trireme::data
