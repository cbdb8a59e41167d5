#pragma once
// gzip: a text compressed in memory, and files uncompressed as they are read.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

std::string gzip(std::string_view bytes);

/// Undoes gzip piece by piece. Several compressed texts one behind the other are one text, as `cat a.gz b.gz` makes them.
class Gunzip {
 public:
  /// `shown`: the file, as messages name it.
  explicit Gunzip(std::string shown);
  ~Gunzip();
  Gunzip(Gunzip&& other) noexcept;
  Gunzip& operator=(Gunzip&& other) noexcept;

  /// Takes bytes off `in` until it is empty or `out` is full, and returns how many it has written. DataError names the byte
  /// at which the file is damaged.
  std::size_t next(std::string_view& in, std::span<char> out);

  /// To be called where the file ends: DataError when the text should go on.
  void finish() const;

 private:
  struct Inflation;
  // An empty file is not gzip: a text must have begun.
  enum class State { inside, between } state_ = State::inside;

  std::string shown_;
  std::unique_ptr<Inflation> inflation_;
  std::uint64_t taken_ = 0;
};

}  // namespace trireme
