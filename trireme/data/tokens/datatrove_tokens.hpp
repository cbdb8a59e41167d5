#pragma once
// Token files of datatrove, which nanotron's Nanosets read: x.ds, x.ds.index, x.ds.metadata, and sometimes x.ds.loss.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "trireme/data/tokens/token_source.hpp"
#include "trireme/data/tokens/token_writer.hpp"

namespace trireme::data {

// Note [The files of datatrove]: all numbers with the least significant byte first.
//   x.ds           tokens, u16 or u32, without a header
//   x.ds.index     a u64 for each document: the number of tokens up to its end
//   x.ds.metadata  text: "tokenizer|bytes of a token" (older: without "|2"), the number of tokens, the same for people
//                  ("1.23 MT"), and, ours, the tokenizer's fingerprint
//   x.ds.loss      a byte for each token, 1 where it counts in the loss
struct DatatroveMetadata {
  TokenType type = TokenType::u16;
  std::int64_t num_tokens = 0;
  TokenizerRecord tokenizer;
};

/// DataError, with `shown` for the file, when it is not such a text.
DatatroveMetadata parse_datatrove_metadata(std::string_view metadata, const std::string& shown);
std::string datatrove_metadata_text(const DatatroveMetadata& metadata);

/// `path`: x.ds. DataError when the files are not as the note says or do not fit each other.
std::unique_ptr<TokenSource> open_datatrove(const std::filesystem::path& path);
std::unique_ptr<TokenWriter> write_datatrove(std::filesystem::path path, TokenWriterOptions options);

}  // namespace trireme::data
