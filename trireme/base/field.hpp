#pragma once
// A key-value field of a log line or trace span. Holds only references: nothing is copied or formatted unless the line
// is written.
#include <concepts>
#include <cstdint>
#include <string_view>
#include <variant>

namespace trireme {

/// A temporary for use within one call: `log.info("saved", {{"step", 400}, {"path", path}})`. Do not store it.
struct LogField {
  using Value = std::variant<bool, std::int64_t, std::uint64_t, double, std::string_view>;

  template <class T>
  LogField(std::string_view name, const T& seen) : key(name), value(look_at(seen)) {}

  std::string_view key;
  Value value;

 private:
  // One template instead of overloads: a string literal would convert to bool rather than to string_view.
  template <class T>
  static Value look_at(const T& seen) {
    if constexpr (std::same_as<T, bool>) {
      return seen;
    } else if constexpr (std::signed_integral<T>) {
      return static_cast<std::int64_t>(seen);
    } else if constexpr (std::unsigned_integral<T>) {
      return static_cast<std::uint64_t>(seen);
    } else if constexpr (std::floating_point<T>) {
      return static_cast<double>(seen);
    } else {
      return std::string_view(seen);
    }
  }
};

}  // namespace trireme
