#pragma once
// Merges token data sets into one, optionally in another format.
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trireme/data/tokens/progress.hpp"
#include "trireme/data/tokens/token_writer.hpp"

namespace trireme::data {

struct MergeOptions {
  std::vector<std::string> inputs;  // as for open_tokens, in this order
  std::filesystem::path out;
  TokenFormat format = TokenFormat::datatrove;
  std::optional<std::uint32_t> document_end;  // for llm.c inputs, which have no document index
  bool force = false;                         // merge even if the tokenizers differ
};

struct Merged {
  std::int64_t documents = 0, tokens = 0;
  TokenizerRecord tokenizer;  // common to all inputs, if they agree
};

/// Keeps documents and loss masks; empty documents are dropped, and inputs without a mask get all 1.
/// DataError if inputs were made by different tokenizers (unless options.force), and as in open_tokens and
/// write_tokens.
Merged merge_tokens(const MergeOptions& options, const DataHooks& hooks = {});

}  // namespace trireme::data
