#pragma once
// The files of text that a command is to read, and reading them, compressed or not.
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

/// `inputs` are files or folders. A folder stands for all files below it, in the order of their paths, but for hidden ones and links
/// to folders. .jsonl, .ndjson and .json are JSON lines, others text; .gz behind that is compressed. DataError for what is not
/// there, for files that are not text by their names, and when there is no file at all.
std::vector<InputFile> input_files(std::span<const std::string> inputs);

/// The bytes of one file, uncompressed, from front to back.
class TextFile {
 public:
  explicit TextFile(const InputFile& file);
  TextFile(TextFile&& other) noexcept;
  TextFile& operator=(TextFile&& other) noexcept;
  ~TextFile();

  /// Fills `out` but at the end of the file; the number of bytes. DataError when the file cannot be read or is damaged.
  std::size_t read(std::span<char> out);
  /// How many bytes of the file on disk it has taken.
  std::uint64_t taken() const { return taken_; }

 private:
  std::size_t read_raw(std::span<char> out);

  std::string shown_;
  int fd_ = -1;
  std::uint64_t taken_ = 0;
  std::optional<Gunzip> gunzip_;
  std::string compressed_;
  std::string_view waiting_;  // of compressed_
};

}  // namespace trireme::data
