#pragma once
// Finds the text input files of a command and reads them, compressed or not.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/gzip.hpp"

namespace trireme::data {

struct InputFile {
  std::filesystem::path path;
  bool json_lines = false;  // else text
  bool gzip = false;
  std::uint64_t bytes = 0;  // on disk
};

/// `inputs` are files or folders. A folder means all files below it, sorted by path, except hidden ones and symlinks to
/// folders. .jsonl, .ndjson and .json are JSON lines, others text; a .gz suffix means compressed. DataError for missing
/// inputs, for file names that indicate binary data, and if there is no file at all.
std::vector<InputFile> input_files(std::span<const std::string> inputs);

/// Sequential reader of one file, decompressed.
class TextFile {
 public:
  explicit TextFile(const InputFile& file);
  TextFile(TextFile&& other) noexcept;
  TextFile& operator=(TextFile&& other) noexcept;
  ~TextFile();

  /// Fills `out`, except at the end of the file; returns the number of bytes. DataError if the file cannot be read or
  /// is corrupt.
  std::size_t read(std::span<char> out);
  /// The number of bytes on disk consumed so far.
  std::uint64_t taken() const { return taken_; }

 private:
  std::size_t read_raw(std::span<char> out);

  std::string shown_;
  int fd_ = -1;
  std::uint64_t taken_ = 0;
  std::optional<Gunzip> gunzip_;
  std::string compressed_;
  std::string_view waiting_;  // unread part of compressed_
};

}  // namespace trireme::data
