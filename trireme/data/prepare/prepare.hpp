#pragma once
// Tokenizes text files into token data sets: the implementation of `trireme data prepare`.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/data/prepare/document_encoder.hpp"
#include "trireme/data/prepare/input_files.hpp"
#include "trireme/data/tokens/progress.hpp"
#include "trireme/data/tokens/token_writer.hpp"

namespace trireme::data {

struct PrepareOptions {
  TextInputs inputs;
  TextCut cut = TextCut::file;
  DocumentOptions documents;

  std::filesystem::path out;  // see token_file()
  TokenFormat format = TokenFormat::datatrove;
  bool append_end = true;      // append the tokenizer's end-of-document token to each document
  std::string tokenizer_name;  // recorded in the data set; empty: the tokenizer's own name
  std::string tokenizer_json;  // a new tokenizer, written next to the data set: out-tokenizer.json

  int workers = 0;  // 0: all cores. Does not affect the result.
  bool shuffle = false;
  std::uint64_t seed = 0;   // for the order and for the choice of held-out documents
  double validation = 0.0;  // fraction of documents held out as the data set out-validation
};

struct WrittenSet {
  std::filesystem::path path;
  std::int64_t documents = 0, tokens = 0;
};

struct Prepared {
  std::vector<WrittenSet> sets;  // training, then validation
  std::int64_t documents = 0, tokens = 0, empty = 0;
  std::int64_t not_utf8 = 0;     // documents with bytes that are not UTF-8
  std::int64_t unanswered = 0;   // conversations without an answer to learn, left out
  std::uint64_t read_bytes = 0;  // of text or JSON, uncompressed
  std::uint64_t text_bytes = 0;  // bytes of text that were tokenized
  BadLines bad;
};

/// The file of the data set `out`, with extension: out.ds, out_KEY_document (Megatron's .bin and .idx), out.bin. An
/// existing extension of `out` is not repeated. `part`: "", or "-validation".
std::filesystem::path token_file(const PrepareOptions& options, const std::string& part);
std::filesystem::path tokenizer_file(const PrepareOptions& options);

/// The result is the same for every number of workers. All data sets appear together when complete; on an error none
/// does.
/// ConfigError for inconsistent options, DataError for invalid inputs and tokenizers.
Prepared prepare(const PrepareOptions& options, const Tokenizer& tokenizer, const DataHooks& hooks = {});

}  // namespace trireme::data
