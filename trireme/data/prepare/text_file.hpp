#pragma once
// A file of text, read from its beginning, decompressed.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "trireme/base/decompressor.hpp"
#include "trireme/base/owned_fd.hpp"
#include "trireme/data/prepare/file_kind.hpp"

namespace trireme::data {

/// An input without a file that could be opened again: standard input or a pipe.
struct HeldInput {
  OwnedFd fd;
  std::string head;  // what has been read from it already
  bool again;        // it can be read again, from its beginning: then `head` is empty
};

enum class TextLayout { text, json_lines, json_list };

struct InputFile {
  std::filesystem::path path;  // "-": standard input
  TextLayout layout = TextLayout::text;
  Compression compression = Compression::none;
  std::uint64_t bytes = 0;                  // on disk; 0 if unknown
  std::shared_ptr<const HeldInput> held{};  // else the file is opened
  bool of_folder = false;                   // found there, not named

  std::string shown() const { return path == "-" ? "standard input" : path.string(); }
};

/// Fills `out` from a file or pipe, except at its end; returns the number of bytes. A stop signal ends the wait for a
/// pipe: Interrupted. DataError if it cannot be read.
std::size_t read_input(int fd, std::span<char> out, const std::string& shown);

/// Sequential reader of one file, decompressed.
class TextFile {
 public:
  explicit TextFile(const InputFile& file);

  /// Fills `out`, except at the end of the file; returns the number of bytes. DataError if the file cannot be read or
  /// is corrupt.
  std::size_t read(std::span<char> out);
  /// The number of bytes on disk consumed so far.
  std::uint64_t taken() const { return taken_; }

 private:
  std::size_t read_raw(std::span<char> out);

  std::string shown_;
  OwnedFd fd_;
  std::shared_ptr<const HeldInput> held_;
  std::string_view head_;  // of held_, not returned yet
  std::uint64_t taken_ = 0;
  std::unique_ptr<Decompressor> decompressor_;
  std::unique_ptr<char[]> compressed_;
  std::string_view waiting_;  // unread part of compressed_
  bool ended_ = false;        // nothing more to read from the file
};

}  // namespace trireme::data
