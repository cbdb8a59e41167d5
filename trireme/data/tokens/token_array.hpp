#pragma once
// A contiguous array of tokens of one integer type in a file, read as 32-bit ids.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "trireme/files/random_reader.hpp"

namespace trireme::data {

enum class TokenType { u8, i8, i16, u16, i32, u32, i64 };

std::string_view name(TokenType type);
std::uint64_t bytes_of(TokenType type);

/// Encodes `ids` in the file's integer type. Each must fit: the writer has checked them against the vocabulary.
std::string encoded(std::span<const std::uint32_t> ids, TokenType type);

class TokenArray {
 public:
  /// `count` tokens from byte `begin` on. The caller must check them against the file size.
  TokenArray(files::RandomReader file, std::uint64_t begin, TokenType type, std::int64_t count);

  std::int64_t size() const { return count_; }
  TokenType type() const { return type_; }
  const std::string& shown() const { return file_.shown(); }

  /// Tokens [first, first + out.size()). DataError for a negative id or one above 2^32 - 1, and as in
  /// RandomReader::read.
  void read(std::int64_t first, std::span<std::uint32_t> out) const;

 private:
  template <class T>
  void read_as(std::int64_t first, std::span<std::uint32_t> out) const;

  files::RandomReader file_;
  std::uint64_t begin_;
  TokenType type_;
  std::int64_t count_;
};

}  // namespace trireme::data
