#pragma once
// Data sets joined into one, which may be of another format.
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
  std::optional<std::uint32_t> document_end;  // of inputs of llm.c, which has no index of documents
  bool force = false;                         // whatever the tokenizers were
};

struct Merged {
  std::int64_t documents = 0, tokens = 0;
  TokenizerRecord tokenizer;  // of all of them, if they agree
};

/// Documents stay what they are, but for those without a token, which are left out; so do the loss masks, all 1 where an input has none.
/// DataError when inputs were made by different tokenizers (unless options.force), and as open_tokens and write_tokens.
Merged merge_tokens(const MergeOptions& options, const DataHooks& hooks = {});

}  // namespace trireme::data
