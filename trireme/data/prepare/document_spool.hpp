#pragma once
// Documents of tokens kept in temporary files until their order is known.
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

/// Memory does not grow with the documents. The files are gone with the object.
class DocumentSpool {
 public:
  /// Files beside `path`, whose names begin with its name.
  DocumentSpool(const std::filesystem::path& path, std::int64_t vocab_size, bool loss_mask);

  void append(std::span<const std::uint32_t> ids, std::span<const std::uint8_t> loss_mask);

  /// All documents, in the order that `stream` chooses.
  void shuffled(const RandomStream& stream,
                const std::function<void(std::span<const std::uint32_t>, std::span<const std::uint8_t>)>& take);

 private:
  TokenType type_;
  files::StagedFile tokens_, ends_;
  std::optional<files::StagedFile> loss_mask_;
  std::uint64_t num_documents_ = 0, num_tokens_ = 0;
};

}  // namespace trireme::data
