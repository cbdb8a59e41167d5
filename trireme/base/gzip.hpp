#pragma once
// gzip: compression in memory, and streaming decompression of files.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "trireme/base/decompressor.hpp"

namespace trireme {

std::string gzip(std::string_view bytes);

/// Streaming decompression. Concatenated gzip members are one text, as `cat a.gz b.gz` makes them.
class Gunzip : public Decompressor {
 public:
  /// `shown`: the file name for error messages.
  explicit Gunzip(std::string shown);
  ~Gunzip() override;
  Gunzip(Gunzip&& other) noexcept;
  Gunzip& operator=(Gunzip&& other) noexcept;

  std::size_t next(std::string_view& in, std::span<char> out) override;
  void finish() const override;

 private:
  struct Inflation;
  // An empty file is not valid gzip: at least one member is required.
  enum class State { inside, between } state_ = State::inside;

  std::string shown_;
  std::unique_ptr<Inflation> inflation_;
  std::uint64_t taken_ = 0;
};

}  // namespace trireme
