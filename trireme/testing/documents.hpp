#pragma once
// Helpers for tests of token files.
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/data/tokens/token_source.hpp"
#include "trireme/data/tokens/token_writer.hpp"
#include "trireme/files/little_endian.hpp"
#include "trireme/testing/temp_folder.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {

using Ids = std::vector<std::uint32_t>;
using Documents = std::vector<Ids>;

inline constexpr std::array<data::TokenFormat, 3> kTokenFormats = {
    data::TokenFormat::datatrove, data::TokenFormat::megatron, data::TokenFormat::llmc};

/// Writes all documents; options.vocab_size = 0 means 50,257.
inline void write_documents(data::TokenFormat format, const std::filesystem::path& path, const Documents& documents,
                            data::TokenWriterOptions options = {}) {
  if (options.vocab_size == 0) options.vocab_size = 50'257;
  const auto writer = data::write_tokens(format, path, std::move(options));
  for (const Ids& ids : documents) writer->append(ids);
  writer->finish();
}

inline Ids all_tokens(const data::TokenSource& source) {
  Ids ids(static_cast<std::size_t>(source.num_tokens()));
  source.read(0, ids);
  return ids;
}

/// Its non-empty documents.
inline Documents documents_of(const data::TokenSource& source) {
  const Ids ids = all_tokens(source);
  Documents documents;
  std::int64_t begin = 0;
  for (const std::int64_t end : source.document_ends(0, source.num_tokens())) {
    documents.emplace_back(ids.begin() + begin, ids.begin() + end);
    begin = end;
  }
  require(begin == source.num_tokens(), "tokens behind the last document");
  return documents;
}

inline Documents without_empty(Documents documents) {
  std::erase_if(documents, [](const Ids& ids) { return ids.empty(); });
  return documents;
}

template <class T>
std::string bytes_of_numbers(const std::vector<T>& values) {
  return std::string(files::little_endian_bytes(std::span<const T>(values)));
}

/// Always creates a new file: ext4 would flush an overwritten one to disk, which takes milliseconds.
inline void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::remove(path);
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  require(out.good(), "cannot write ", path.string());
}

}  // namespace trireme
