#include "trireme/data/prepare/corpus_words.hpp"

#include "trireme/base/error.hpp"
#include "trireme/data/prepare/ordered_work.hpp"
#include "trireme/files/shown_name.hpp"

namespace trireme::data {
namespace {

struct CountedBatch {
  TextBatch text;
  std::int64_t documents = 0;
  BadLines bad;
};

void check(const BpeTrainOptions& options) {
  for (std::size_t i = 0; i < options.special_tokens.size(); ++i) {
    const std::string& token = options.special_tokens[i];
    const auto begin = options.special_tokens.begin();
    require<ConfigError>(!token.empty() && std::find(begin, begin + static_cast<std::ptrdiff_t>(i), token) ==
                                               begin + static_cast<std::ptrdiff_t>(i),
                         "the special token ", files::shown_name(token),
                         token.empty() ? " is empty" : " is named twice");
  }
}

}  // namespace

std::optional<KnownPattern> pattern_by_name(std::string_view name) {
  if (name == "gpt2") return KnownPattern::gpt2;
  if (name == "llama3") return KnownPattern::llama3;
  if (name == "qwen2") return KnownPattern::qwen2;
  return std::nullopt;
}

TrainedBpe train_bpe_on_files(const CorpusOptions& corpus, const BpeTrainOptions& options, CorpusCounts& counts,
                              const DataHooks& hooks) {
  check(options);
  DocumentReader reader(corpus.inputs.files, corpus.cut);
  const auto workers = static_cast<std::size_t>(num_workers(corpus.workers));
  std::vector<DocumentParser> parsers(workers, DocumentParser(corpus.documents, reader));
  std::vector<WordCounts> words(workers);

  WorkStages<CountedBatch> steps;
  steps.read = [&](CountedBatch& batch) { return reader.next(batch.text); };
  steps.bytes = [](const CountedBatch& batch) { return batch.text.bytes.size(); };
  steps.work = [&](CountedBatch& batch, int worker) {
    const auto mine = static_cast<std::size_t>(worker);
    batch.documents = 0;
    batch.bad = {};
    parsers[mine].each(batch.text, batch.bad, [&](std::span<const TextPart> parts) {
      for (const TextPart& part : parts) count_words(part.text, options.pattern, words[mine]);
      ++batch.documents;
    });
  };
  steps.stopped = hooks.stopped;
  steps.write = [&](CountedBatch& batch) {
    counts.documents += batch.documents;
    counts.read_bytes += batch.text.bytes.size();
    counts.bad.add(batch.bad);
    hooks.progress({batch.text.taken, reader.disk_bytes(), counts.read_bytes, counts.documents, 0});
  };
  ordered_work(static_cast<int>(workers), steps);

  for (std::size_t i = 1; i < workers; ++i) {
    words[0].add(words[i]);
    words[i] = {};
  }
  require<DataError>(words[0].size() > 0, corpus.inputs.named.front(), ": no text to train a tokenizer on");
  return train_bpe(words[0], options, [&](std::int64_t) {
    if (hooks.stopped()) throw Interrupted("interrupted; nothing was written");
  });
}

}  // namespace trireme::data
