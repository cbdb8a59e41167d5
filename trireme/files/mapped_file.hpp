#pragma once
// A file as bytes in memory, read only.
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace trireme::files {

// Note [Files that change while they are mapped]: the length is the one that fstat gives after the file is opened, and
// nothing is read beyond it. A file that is made shorter afterwards raises SIGBUS at the first read behind its new end,
// as with every mapping, and one that is written to changes under the reader's eyes; both are mistakes of whoever
// writes in place. Files of ours are written under another name and renamed, which leaves the mapped one as it was.
class MappedFile {
 public:
  /// Follows links: `path` is what a person gave. Throws CheckpointError when there is no regular file to read.
  explicit MappedFile(const std::filesystem::path& path);
  /// Takes `fd` over, also when it throws; `shown` stands for the file in messages.
  MappedFile(int fd, std::string shown);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& shown() const { return shown_; }

 private:
  std::string shown_;
  std::span<const std::byte> bytes_;
};

}  // namespace trireme::files
