#pragma once
// Text into token files: the work of `trireme data prepare`.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/data/prepare/document_encoder.hpp"
#include "trireme/data/tokens/progress.hpp"
#include "trireme/data/tokens/token_writer.hpp"

namespace trireme::data {

struct PrepareOptions {
  std::vector<std::string> inputs;  // files and folders
  TextCut cut = TextCut::file;
  DocumentOptions documents;

  std::filesystem::path out;  // see token_file()
  TokenFormat format = TokenFormat::datatrove;
  bool append_end = true;      // the tokenizer's end of document behind each
  std::string tokenizer_name;  // as the data set names it; empty: as the tokenizer does
  std::string tokenizer_json;  // a new tokenizer, to be written beside the data set: out-tokenizer.json

  int workers = 0;  // 0: all cores. Decides nothing but the time.
  bool shuffle = false;
  std::uint64_t seed = 0;   // of the order and of which documents are held out
  double validation = 0.0;  // the share of documents that goes to a data set of its own, out-validation
};

struct WrittenSet {
  std::filesystem::path path;
  std::int64_t documents = 0, tokens = 0;
};

struct Prepared {
  std::vector<WrittenSet> sets;  // for training, then for validation
  std::int64_t documents = 0, tokens = 0, empty = 0;
  std::uint64_t read_bytes = 0;  // of text or JSON, uncompressed
  std::uint64_t text_bytes = 0;  // that became tokens
  BadLines bad;
};

/// The file that holds the data set `out`, with its ending: out.ds, out_KEY_document (Megatron's .bin and .idx), out.bin. An ending that
/// `out` has already is not doubled. `part`: "", or "-validation".
std::filesystem::path token_file(const PrepareOptions& options, const std::string& part);
std::filesystem::path tokenizer_file(const PrepareOptions& options);

/// The result is the same for every number of workers. Data sets appear when all of them are complete; on any error nothing does.
/// ConfigError for options that do not fit together, DataError for inputs and tokenizers that are not as they should be.
Prepared prepare(const PrepareOptions& options, const Tokenizer& tokenizer, const DataHooks& hooks = {});

}  // namespace trireme::data
