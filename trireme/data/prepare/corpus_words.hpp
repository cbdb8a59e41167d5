#pragma once
// Trains a BPE tokenizer on text files.
#include <string>
#include <vector>

#include "trireme/data/prepare/document_encoder.hpp"
#include "trireme/data/prepare/input_files.hpp"
#include "trireme/data/tokenizer/bpe_train.hpp"
#include "trireme/data/tokens/progress.hpp"

namespace trireme::data {

/// "gpt2", "llama3", "qwen2".
std::optional<KnownPattern> pattern_by_name(std::string_view name);

struct CorpusOptions {
  TextInputs inputs;
  TextCut cut = TextCut::file;
  DocumentOptions documents;
  int workers = 0;  // 0: all cores
};

struct CorpusCounts {
  std::int64_t documents = 0;
  std::uint64_t read_bytes = 0;
  BadLines bad;
};

/// Counts words on several threads and trains on the counts; the result does not depend on the number of threads.
TrainedBpe train_bpe_on_files(const CorpusOptions& corpus, const BpeTrainOptions& options, CorpusCounts& counts,
                              const DataHooks& hooks = {});

}  // namespace trireme::data
