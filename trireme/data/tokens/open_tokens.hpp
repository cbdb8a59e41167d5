#pragma once
// Opens token files of any format: finds out which it is, and checks everything that can be checked before the first step.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "trireme/data/tokens/token_source.hpp"

namespace trireme::data {

struct OpenTokensOptions {
  /// For llm.c's files, which have no index of documents: the token behind which a document ends (Note [Documents of llm.c]).
  std::optional<std::uint32_t> document_end;
};

/// `path` is one of
///   x.ds                      datatrove, with x.ds.index and x.ds.metadata beside it
///   x, x.idx or x.bin         Megatron, where x.idx is there
///   x.bin                     llm.c, otherwise
///   a folder                  all its files of one of these formats, in the order of their names, as one row
///   folder/train_*.bin        the same with those that the pattern (* and ?) names
/// DataError, before anything is read, names what is there and what would be accepted; what is wrong in a file, as its format's
/// open function says.
std::unique_ptr<TokenSource> open_tokens(const std::filesystem::path& path, const OpenTokensOptions& options = {});

}  // namespace trireme::data
