#include "trireme/data/tokens/token_array.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/data/tokens/lanes.hpp"

namespace trireme::data {
namespace {

/// Calls `body` with a value of the C++ type that corresponds to `type`.
template <class Body>
auto with_type(TokenType type, const Body& body) {
  switch (type) {
    case TokenType::u8: return body(std::uint8_t{});
    case TokenType::i8: return body(std::int8_t{});
    case TokenType::i16: return body(std::int16_t{});
    case TokenType::u16: return body(std::uint16_t{});
    case TokenType::i32: return body(std::int32_t{});
    case TokenType::u32: return body(std::uint32_t{});
    case TokenType::i64: return body(std::int64_t{});
  }
  throw InternalError("a token type that does not exist");
}

template <class T>
constexpr bool is_id(T value) {
  return std::in_range<std::uint32_t>(value);
}

}  // namespace

std::string_view name(TokenType type) {
  constexpr std::array<std::string_view, 7> kNames = {"u8", "i8", "i16", "u16", "i32", "u32", "i64"};
  return kNames.at(static_cast<std::size_t>(type));
}

std::uint64_t bytes_of(TokenType type) {
  return with_type(type, [](auto value) -> std::uint64_t { return sizeof value; });
}

std::string encoded(std::span<const std::uint32_t> ids, TokenType type) {
  return with_type(type, [&]<class T>(T) {
    static_assert(files::kLittleEndian);
    std::string bytes(ids.size() * sizeof(T), '\0');
    if (ids.empty()) return bytes;
    const std::uint32_t most = largest(ids);
    require(std::in_range<T>(most), "token ", most, " does not fit ", name(type));
    if constexpr (sizeof(T) == 4) {
      std::memcpy(bytes.data(), ids.data(), bytes.size());
    } else if constexpr (sizeof(T) == 2) {
      narrow(ids, reinterpret_cast<std::uint16_t*>(bytes.data()));
    } else {
      char* to = bytes.data();
      for (const std::uint32_t id : ids) {
        const auto value = static_cast<T>(id);
        std::memcpy(to, &value, sizeof(T));
        to += sizeof(T);
      }
    }
    return bytes;
  });
}

TokenArray::TokenArray(files::RandomReader file, std::uint64_t begin, TokenType type, std::int64_t count)
    : file_(std::move(file)), begin_(begin), type_(type), count_(count) {
  require(count >= 0 && begin <= file_.size() &&
              static_cast<std::uint64_t>(count) <= (file_.size() - begin) / bytes_of(type),
          file_.shown(), ": ", count, " tokens of type ", name(type), " from byte ", begin, " on leave the file");
}

void TokenArray::read(std::int64_t first, std::span<std::uint32_t> out) const {
  require(first >= 0 && first <= count_ && out.size() <= static_cast<std::uint64_t>(count_ - first), shown(), ": ",
          out.size(), " tokens from token ", first, " on leave a row of ", count_);
  with_type(type_, [&]<class T>(T) { read_as<T>(first, out); });
}

template <class T>
void TokenArray::read_as(std::int64_t first, std::span<std::uint32_t> out) const {
  if constexpr (std::is_same_v<T, std::uint32_t>) {
    file_.read_numbers(begin_ + static_cast<std::uint64_t>(first) * sizeof(T), out);
  } else {
    std::array<T, 16384 / sizeof(T)> part;  // on the stack: several threads may read concurrently
    while (!out.empty()) {
      const auto raw = std::span(part).first(std::min(part.size(), out.size()));
      file_.read_numbers(begin_ + static_cast<std::uint64_t>(first) * sizeof(T), raw);
      bool all_are_ids = true;
      if constexpr (std::is_same_v<T, std::uint16_t>) {
        widen(raw, out.data());
      } else {
        for (std::size_t i = 0; i < raw.size(); ++i) {
          all_are_ids &= is_id(raw[i]);
          out[i] = static_cast<std::uint32_t>(raw[i]);
        }
      }
      if (!all_are_ids) {
        const auto bad = std::ranges::find_if_not(raw, is_id<T>) - raw.begin();
        throw DataError(
            text("token ", thousands(static_cast<std::int64_t>(raw[static_cast<std::size_t>(bad)])), " at position ",
                 thousands(first + bad), " of ", shown(), " (", name(type_),
                 ") cannot be a token: ids are 0 to 4,294,967,295",
                 "\n  fix: fetch the file again or prepare the data again; this one is damaged or holds no tokens"));
      }
      first += static_cast<std::int64_t>(raw.size());
      out = out.subspan(raw.size());
    }
  }
}

}  // namespace trireme::data
