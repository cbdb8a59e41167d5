#pragma once
// Token files of Megatron, NeMo and GPT-NeoX: x.idx and x.bin.
#include <filesystem>
#include <memory>

#include "trireme/data/tokens/token_source.hpp"
#include "trireme/data/tokens/token_writer.hpp"

namespace trireme::data {

// Note [The files of Megatron]: all numbers with the least significant byte first.
//   x.bin   the tokens, without a header
//   x.idx   "MMIDIDX" and two zero bytes; u64 version = 1; u8 type of a token (1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 8 u16; 6 and 7
//           are floating point, not tokens); u64 S = number of sequences; u64 D = number of documents plus one;
//           i32[S] lengths of the sequences, in tokens; i64[S] where they begin in x.bin, in bytes; i64[D] how many sequences
//           there are before each document, and after the last (0 ... S); sometimes i8[S] kinds of sequences (pictures ...).
// Every writer puts the sequences one after the other without gaps, so that the bytes say nothing beyond the lengths; an
// index that differs is refused, because our rows of tokens have no gaps. So is one with kinds other than 0 (text).
// The tokenizer is written down beside them, in x.tokenizer.

/// `prefix`: without .idx and .bin. DataError when the files are not as the note says or do not fit each other.
std::unique_ptr<TokenSource> open_megatron(const std::filesystem::path& prefix);
/// A sequence for each document.
std::unique_ptr<TokenWriter> write_megatron(std::filesystem::path path, TokenWriterOptions options);

}  // namespace trireme::data
