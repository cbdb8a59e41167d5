#pragma once
// A file opened once and read at any place, by many threads; a file that changes is an error, never a signal.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <type_traits>

#include <time.h>

#include "trireme/files/little_endian.hpp"

namespace trireme::files {

// Note [Files that change while they are read]: docs/adr/0008. The size and the time of the last change are those of the
// moment of opening, and are compared after each read: a file that was cut, or written to in place, is a DataError at the
// next read. A file that was replaced by a rename stays what it was for whoever has it open.
class RandomReader {
 public:
  /// Follows links. DataError when there is no regular file to read.
  explicit RandomReader(const std::filesystem::path& path);
  RandomReader(RandomReader&& other) noexcept;
  RandomReader& operator=(RandomReader&& other) noexcept;
  ~RandomReader();

  const std::string& shown() const { return shown_; }
  std::uint64_t size() const { return size_; }

  /// Bytes [offset, offset + out.size()), which lie within size(). Several threads may read at once. DataError when the
  /// file is no longer what it was when it was opened, or cannot be read.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

  /// The same for numbers that the file holds with the least significant byte first.
  template <class T>
  void read_numbers(std::uint64_t offset, std::span<T> out) const {
    static_assert(std::is_arithmetic_v<T> && kLittleEndian);
    read(offset, std::as_writable_bytes(out));
  }

 private:
  void check_unchanged() const;

  std::string shown_;
  int fd_;
  std::uint64_t size_ = 0;
  timespec changed_{};
};

/// Whether something of that name is there, even if it may not be read: opening it then says why.
bool is_there(const std::filesystem::path& path);

}  // namespace trireme::files
