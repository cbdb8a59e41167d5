#pragma once
// Reader for llm.c token files: x.bin, a header of 1,024 bytes and the tokens.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "trireme/data/tokens/token_source.hpp"
#include "trireme/data/tokens/token_writer.hpp"

namespace trireme::data {

// Note [Documents of llm.c]: the header is 256 i32: a magic number, a version, the number of tokens, and unused zeros.
// 20240520 with version 1 is u16, 20240801 with version 7 is u32. There is no index: a file is one document, or, given
// the id of the delimiter token, is split at each of these. A document ends after that token, even if it was meant to
// begin one (as in llm.c's own scripts): documents then end with the next one's delimiter.
// The tokenizer is recorded in a sidecar file, x.tokenizer.

/// DataError if the file violates the note.
std::unique_ptr<TokenSource> open_llmc(const std::filesystem::path& path,
                                       std::optional<std::uint32_t> document_end = {});
std::unique_ptr<TokenWriter> write_llmc(std::filesystem::path path, TokenWriterOptions options);

}  // namespace trireme::data
