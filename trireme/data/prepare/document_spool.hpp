#pragma once
// Tokenized documents spooled to temporary files until their shuffled order is known.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "trireme/base/philox.hpp"
#include "trireme/data/tokens/token_array.hpp"
#include "trireme/files/staged_files.hpp"

namespace trireme::data {

/// Memory does not grow with the number of documents. The destructor removes the files.
class DocumentSpool {
 public:
  /// Files are next to `path`, with its name as prefix.
  DocumentSpool(const std::filesystem::path& path, std::int64_t vocab_size, bool loss_mask);

  void append(std::span<const std::uint32_t> ids, std::span<const std::uint8_t> loss_mask);

  /// Visits all documents, in the random order given by `stream`.
  void shuffled(const RandomStream& stream,
                const std::function<void(std::span<const std::uint32_t>, std::span<const std::uint8_t>)>& take);

 private:
  TokenType type_;
  files::StagedFile tokens_, ends_;
  std::optional<files::StagedFile> loss_mask_;
  std::uint64_t num_documents_ = 0, num_tokens_ = 0;
};

}  // namespace trireme::data
