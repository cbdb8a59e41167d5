#pragma once
// Reader and writer for token files of Megatron-LM, NeMo and GPT-NeoX: x.idx and x.bin.
#include <filesystem>
#include <memory>

#include "trireme/data/tokens/token_source.hpp"
#include "trireme/data/tokens/token_writer.hpp"

namespace trireme::data {

// Note [The files of Megatron]: all numbers are little-endian.
//   x.bin   the tokens, without a header
//   x.idx   "MMIDIDX" and two zero bytes; u64 version = 1; u8 token dtype (1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 8 u16; 6
//           and 7 are floating point, not tokens); u64 S = number of sequences; u64 D = number of documents plus one;
//           i32[S] lengths of the sequences, in tokens; i64[S] their byte offsets in x.bin; i64[D] the index of the
//           first sequence of each document, and S at the end (0 ... S); optionally i8[S] sequence modes (images ...).
// Every writer stores the sequences without gaps, so that the offsets are redundant; an index that differs is rejected,
// because a TokenSource has no gaps. So is one with modes other than 0 (text).
// The tokenizer is recorded in a sidecar file, x.tokenizer.

/// `prefix`: without .idx and .bin. DataError if the files violate the note or are inconsistent.
std::unique_ptr<TokenSource> open_megatron(const std::filesystem::path& prefix);
/// Writes one sequence per document.
std::unique_ptr<TokenWriter> write_megatron(std::filesystem::path path, TokenWriterOptions options);

}  // namespace trireme::data
