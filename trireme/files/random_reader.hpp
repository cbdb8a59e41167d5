#pragma once
// Random access to an open file (pread) from many threads; a file that changes is an error, never a SIGBUS.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <type_traits>

#include <sys/types.h>

#include "trireme/base/error.hpp"
#include "trireme/files/little_endian.hpp"

namespace trireme::files {

/// The system could not read the file now; its contents are not known to be wrong. Another try may succeed.
struct ReadFailed : DataError {
  using DataError::DataError;
};

/// Differs after a file was replaced, truncated, or written to in place.
struct FileStamp {
  dev_t device = 0;
  ino_t inode = 0;
  std::uint64_t size = 0;
  std::int64_t changed_s = 0, changed_ns = 0;  // the modification time
  bool operator==(const FileStamp&) const = default;
};

/// Aligned memory for direct reads of up to `bytes` bytes.
class DirectScratch {
 public:
  explicit DirectScratch(std::size_t bytes);
  ~DirectScratch();
  DirectScratch(const DirectScratch&) = delete;
  DirectScratch& operator=(const DirectScratch&) = delete;

  static constexpr std::size_t kAlign = 4096;  // of addresses, offsets and sizes
  std::span<std::byte> memory() const { return {memory_, size_}; }

 private:
  std::size_t size_;
  std::byte* memory_;
};

// Note [Files that change while they are read]: docs/adr/0008. Size and modification time are recorded at open and
// compared after each read: a file that was truncated or written in place is a DataError at the next read. A file that
// was replaced by a rename stays readable for those that have it open.
class RandomReader {
 public:
  /// Follows symlinks. Throws DataError if it is not a readable regular file.
  explicit RandomReader(const std::filesystem::path& path);
  /// Takes ownership of `fd`, even if it throws; `shown` is the file name for messages.
  RandomReader(int fd, std::string shown);
  RandomReader(RandomReader&& other) noexcept;
  RandomReader& operator=(RandomReader&& other) noexcept;
  ~RandomReader();

  const std::string& shown() const { return shown_; }
  std::uint64_t size() const { return stamp_.size; }
  const FileStamp& stamp() const { return stamp_; }

  /// Reads bytes [offset, offset + out.size()), which must lie within size(). Thread-safe. Throws DataError if the file
  /// has changed since it was opened, ReadFailed if it cannot be read.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

  /// The same without the page cache: large reads cost less of a core, and push nothing else out of memory, but who
  /// reads the same bytes again reads them from the disk again. `scratch`: made for out.size() bytes or more. False,
  /// and nothing was read, if the file system cannot, or after an error, which read() then reports. Not while other
  /// threads read.
  bool read_direct(std::uint64_t offset, std::span<std::byte> out, const DirectScratch& scratch) const;

  /// The same for little-endian numbers.
  template <class T>
  void read_numbers(std::uint64_t offset, std::span<T> out) const {
    static_assert(std::is_arithmetic_v<T> && kLittleEndian);
    read(offset, std::as_writable_bytes(out));
  }

 private:
  void check_unchanged() const;

  std::string shown_;
  int fd_;
  FileStamp stamp_;
};

/// Whether the path exists, even if it is not readable: opening it then reports why.
bool is_there(const std::filesystem::path& path);

}  // namespace trireme::files
