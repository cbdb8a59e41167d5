#pragma once
// Opens token files of any supported format: detects it, and validates everything possible before the first step.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "trireme/data/tokens/token_source.hpp"
#include "trireme/data/tokens/token_writer.hpp"

namespace trireme::data {

struct OpenTokensOptions {
  /// For llm.c files, which have no document index: the token that ends a document (Note [Documents of llm.c]).
  std::optional<std::uint32_t> document_end;
};

/// The token files that a path means.
struct TokenFiles {
  TokenFormat format = TokenFormat::datatrove;
  std::vector<std::filesystem::path> files;  // x.ds, x.idx or x.bin; sorted by name
  bool several = false;                      // a folder or a pattern, even if only one file matches
};

/// `path` is one of
///   x.ds                      datatrove, with x.ds.index and x.ds.metadata next to it
///   x, x.idx or x.bin         Megatron, if x.idx exists
///   x.bin                     llm.c, otherwise
///   a folder                  all its files of one of these formats, sorted by name and concatenated
///   folder/train_*.bin        the same for the files that match the glob pattern (* and ?)
/// Throws DataError that lists what was found and what is accepted, before anything is read.
TokenFiles find_token_files(const std::filesystem::path& path);

/// Opens what find_token_files finds. DataError from it, or, for an invalid file, from that format's open function.
std::unique_ptr<TokenSource> open_tokens(const std::filesystem::path& path, const OpenTokensOptions& options = {});

}  // namespace trireme::data
