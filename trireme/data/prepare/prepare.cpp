#include "trireme/data/prepare/prepare.hpp"

#include <memory>
#include <optional>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/data/prepare/document_spool.hpp"
#include "trireme/data/prepare/ordered_work.hpp"
#include "trireme/data/tokens/output_folder.hpp"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

/// One output data set. With shuffling, documents are spooled to disk until all are known.
class Output {
 public:
  Output(const PrepareOptions& options, const Tokenizer& tokenizer, const std::string& part)
      : path_(token_file(options, part)), order_(options.seed, "shuffled documents" + part) {
    const std::string name = options.tokenizer_name.empty() ? tokenizer.name() : options.tokenizer_name;
    const bool masked = options.documents.chat.has_value();
    writer_ = write_tokens(options.format, path_,
                           {.vocab_size = tokenizer.vocab_size(),
                            .tokenizer = {.name = name, .fingerprint = tokenizer.fingerprint()},
                            .loss_mask = masked,
                            .before_step = {}});
    if (options.shuffle) spool_.emplace(path_, tokenizer.vocab_size(), masked);
  }

  void append(std::span<const TokenId> ids, std::span<const std::uint8_t> loss_mask) {
    if (spool_)
      spool_->append(ids, loss_mask);
    else
      writer_->append(ids, loss_mask);
    ++documents_;
  }

  std::int64_t documents() const { return documents_; }

  void settle(const std::function<bool()>& stopped) {
    if (spool_)
      spool_->shuffled(order_, [&](const auto& ids, const auto& loss_mask) {
        if (stopped()) throw Interrupted("interrupted; nothing was written");
        writer_->append(ids, loss_mask);
      });
    writer_->settle();
  }
  void retract() { writer_->retract(); }
  WrittenSet finish() {
    writer_->finish();
    return {path_, writer_->num_documents(), writer_->num_tokens()};
  }

 private:
  fs::path path_;
  RandomStream order_;
  std::unique_ptr<TokenWriter> writer_;
  std::optional<DocumentSpool> spool_;
  std::int64_t documents_ = 0;
};

/// Whether a token is put behind each document. A conversation whose template ends it gets no second end.
bool appends_end(const PrepareOptions& options) {
  const bool ends_itself = options.documents.chat && options.documents.chat->ends_itself();
  return options.append_end && !ends_itself;
}

void check(const PrepareOptions& options, const Tokenizer& tokenizer) {
  require<ConfigError>(options.validation >= 0 && options.validation < 1, "--validation ", options.validation,
                       "; a share of the documents, from 0 up to but not including 1");
  require<DataError>(!appends_end(options) || tokenizer.end_of_document(), tokenizer.name(),
                     " has no token that ends a document",
                     "\n  fix: --no-append-eod, or a tokenizer with <|endoftext|>, <|end_of_text|> or </s>");
  if (!options.documents.chat) return;
  require<ConfigError>(options.format == TokenFormat::datatrove, "--chat with --format ", name(options.format),
                       ": only datatrove has a place for the loss mask\n  fix: --format datatrove");
  options.documents.chat->check(tokenizer);
}

/// Releases buffers that one large document has grown.
void give_back_memory(EncodedBatch& batch) {
  if (batch.text.bytes.capacity() > 16 * DocumentReader::kBatchBytes) batch = {};
}

void check_split(const std::vector<std::unique_ptr<Output>>& outputs, const PrepareOptions& options) {
  if (outputs.size() < 2) return;
  const std::int64_t rest = outputs[0]->documents(), held = outputs[1]->documents();
  require<DataError>(held > 0 && rest > 0, "--validation ", options.validation, " takes ", held, " of ",
                     thousands(held + rest), held + rest == 1 ? " document" : " documents",
                     "\n  fix: another share or --seed; for one long text, --documents blank-line or lines");
}

}  // namespace

fs::path token_file(const PrepareOptions& options, const std::string& part) {
  fs::path out = options.out;
  const fs::path ending = out.extension();
  switch (options.format) {
    case TokenFormat::datatrove:
      if (ending == ".ds") out.replace_extension();
      return out += part + ".ds";
    case TokenFormat::llmc:
      if (ending == ".bin") out.replace_extension();
      return out += part + ".bin";
    case TokenFormat::megatron: return out += part + "_" + options.documents.key + "_document";
  }
  throw InternalError("a token format that does not exist");
}

fs::path tokenizer_file(const PrepareOptions& options) {
  fs::path out = options.out;
  if (out.extension() == ".ds" || out.extension() == ".bin") out.replace_extension();
  return out += "-tokenizer.json";
}

Prepared prepare(const PrepareOptions& options, const Tokenizer& tokenizer, const DataHooks& hooks) {
  check(options, tokenizer);
  DocumentReader reader(options.inputs.files, options.cut);
  const OutputFolder folder(options.out);
  std::optional<files::StagedFiles> tokenizer_copy;
  if (!options.tokenizer_json.empty()) {
    tokenizer_copy.emplace();
    tokenizer_copy->add(tokenizer_file(options)).append(options.tokenizer_json);
  }
  std::vector<std::unique_ptr<Output>> outputs;
  outputs.push_back(std::make_unique<Output>(options, tokenizer, ""));
  if (options.validation > 0) outputs.push_back(std::make_unique<Output>(options, tokenizer, "-validation"));

  const int workers = num_workers(options.workers);
  std::vector<DocumentParser> parsers(static_cast<std::size_t>(workers), DocumentParser(options.documents, reader));
  const auto end = appends_end(options) ? tokenizer.end_of_document() : std::nullopt;
  const RandomStream held_out(options.seed, "documents for validation");
  Prepared result;

  WorkStages<EncodedBatch> steps;
  steps.read = [&](EncodedBatch& batch) { return reader.next(batch.text); };
  steps.bytes = [](const EncodedBatch& batch) { return batch.text.bytes.size(); };
  steps.work = [&](EncodedBatch& batch, int worker) {
    encode_documents(tokenizer, end, parsers[static_cast<std::size_t>(worker)], batch);
  };
  steps.stopped = hooks.stopped;
  steps.write = [&](EncodedBatch& batch) {
    std::size_t begin = 0;
    for (const std::size_t next : batch.ends) {
      // Depends only on the index of the document: not on its text or on other documents.
      const auto number = static_cast<std::uint64_t>(result.documents++);
      Output& output = *outputs[held_out.uniform(number) < options.validation ? 1 : 0];
      const auto mask = std::span(std::as_const(batch.loss_mask));
      output.append(std::span(std::as_const(batch.ids)).subspan(begin, next - begin),
                    mask.empty() ? mask : mask.subspan(begin, next - begin));
      begin = next;
    }
    result.tokens += static_cast<std::int64_t>(batch.ids.size());
    result.empty += batch.empty;
    result.unanswered += batch.unanswered;
    result.not_utf8 += batch.not_utf8;
    result.read_bytes += batch.text.bytes.size();
    result.text_bytes += batch.text_bytes;
    result.bad.add(batch.bad);
    hooks.progress({batch.text.taken, reader.disk_bytes(), result.read_bytes, result.documents, result.tokens});
    give_back_memory(batch);
  };
  ordered_work(workers, steps);

  require<DataError>(result.documents > 0, options.inputs.named.front(), ": no document with a token in ",
                     options.inputs.named.size() == 1 ? "it" : text("this and the other inputs"), " (", result.empty,
                     " empty, ", result.unanswered > 0 ? text(result.unanswered, " without an answer to learn, ") : "",
                     result.bad.count, " bad)",
                     result.bad.count > 0 ? text("\n  the first bad one: ", result.bad.first) : "");
  check_split(outputs, options);
  for (const auto& output : outputs) output->settle(hooks.stopped);
  if (tokenizer_copy) tokenizer_copy->settle();
  if (hooks.stopped()) throw Interrupted("interrupted; nothing was written");
  // From here on only removals and renames. Old and new sets must not be mixed: the old training data may contain
  // documents that are held out now.
  for (const auto& output : outputs) output->retract();
  if (tokenizer_copy) tokenizer_copy->publish();
  for (const auto& output : outputs) result.sets.push_back(output->finish());
  return result;
}

}  // namespace trireme::data
