#pragma once
// Token files of llm.c: x.bin, a header of 1,024 bytes and the tokens.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "trireme/data/tokens/token_source.hpp"
#include "trireme/data/tokens/token_writer.hpp"

namespace trireme::data {

// Note [Documents of llm.c]: the header is 256 i32: a magic number, a version, the number of tokens, and zeros that nobody
// reads. 20240520 with version 1 is u16, 20240801 with version 7 is u32. There is no index: a file is one document, or, with
// the id of the token that stands between documents, one for each of these. A document ends behind that token, also where
// (as in llm.c's own scripts) it was meant to begin one: documents then carry the next one's mark.
// The tokenizer is written down beside it, in x.tokenizer.

/// DataError when the file is not as the note says.
std::unique_ptr<TokenSource> open_llmc(const std::filesystem::path& path,
                                       std::optional<std::uint32_t> document_end = {});
std::unique_ptr<TokenWriter> write_llmc(std::filesystem::path path, TokenWriterOptions options);

}  // namespace trireme::data
