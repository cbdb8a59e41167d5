#pragma once
// Streaming decompression of a file, whatever it was compressed with.
#include <cstddef>
#include <span>
#include <string_view>

namespace trireme {

class Decompressor {
 public:
  virtual ~Decompressor() = default;

  /// Consumes bytes from `in` until it is empty or `out` is full; returns the number of bytes written. An empty `in`
  /// asks for what is still held back. DataError names the offset at which the file is corrupt.
  virtual std::size_t next(std::string_view& in, std::span<char> out) = 0;

  /// Call at the end of the file: throws DataError if the file is truncated.
  virtual void finish() const = 0;
};

}  // namespace trireme
