#pragma once
// Reading and writing little-endian numbers as file bytes. Header only.
#include <bit>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace trireme::files {

/// True on every machine that libtorch supports; code that depends on it has a static_assert.
inline constexpr bool kLittleEndian = std::endian::native == std::endian::little;

template <class T>
T little_endian_at(const void* bytes) {
  static_assert(std::is_arithmetic_v<T> && kLittleEndian);
  T value;
  std::memcpy(&value, bytes, sizeof value);  // may be unaligned
  return value;
}

template <class T>
void append_little_endian(std::string& bytes, T value) {
  static_assert(std::is_arithmetic_v<T> && kLittleEndian);
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T>
std::string_view little_endian_bytes(std::span<const T> values) {
  static_assert(std::is_arithmetic_v<T> && kLittleEndian);
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

}  // namespace trireme::files
