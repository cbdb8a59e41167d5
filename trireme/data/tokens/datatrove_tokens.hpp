#pragma once
// Reader for datatrove token files, used by nanotron's Nanosets: x.ds, x.ds.index, x.ds.metadata, optionally x.ds.loss.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "trireme/data/tokens/token_source.hpp"
#include "trireme/data/tokens/token_writer.hpp"

namespace trireme::data {

// Note [The files of datatrove]: all numbers are little-endian.
//   x.ds           tokens, u16 or u32, without a header
//   x.ds.index     one u64 per document: the number of tokens up to its end
//   x.ds.metadata  text: "tokenizer|bytes per token" (older: without "|2"), the number of tokens, the same in
//                  human-readable form ("1.23 MT"), and, a Trireme extension, the tokenizer's fingerprint
//   x.ds.loss      one byte per token, 1 if it counts in the loss
struct DatatroveMetadata {
  TokenType type = TokenType::u16;
  std::int64_t num_tokens = 0;
  TokenizerRecord tokenizer;
};

/// Throws DataError for invalid metadata; `shown` is the file name for messages.
DatatroveMetadata parse_datatrove_metadata(std::string_view metadata, const std::string& shown);
std::string datatrove_metadata_text(const DatatroveMetadata& metadata);

/// `path`: x.ds. DataError if the files violate the note or are inconsistent.
std::unique_ptr<TokenSource> open_datatrove(const std::filesystem::path& path);
std::unique_ptr<TokenWriter> write_datatrove(std::filesystem::path path, TokenWriterOptions options);

}  // namespace trireme::data
