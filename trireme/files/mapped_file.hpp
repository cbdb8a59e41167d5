#pragma once
// A read-only memory-mapped file.
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace trireme::files {

// Note [Files that change while they are mapped]: the length is taken from fstat after opening, and nothing is read
// beyond it. If the file is truncated afterwards, the first read past its new end raises SIGBUS, as with every mapping,
// and if it is written to, the reader sees the change; both are errors of the process that writes in place. Trireme's
// own files are written to a temporary name and renamed, which does not affect existing mappings.
class MappedFile {
 public:
  /// Follows symlinks: `path` comes from the user. Throws CheckpointError if it is not a readable regular file.
  explicit MappedFile(const std::filesystem::path& path);
  /// Takes ownership of `fd`, even if it throws; `shown` is the file name for messages.
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
