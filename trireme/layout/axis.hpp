#pragma once
// The named parallelism axes of a rank grid (pp, dp, cp, tp, ep, edp), and sets of axes.
#include <array>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "trireme/base/error.hpp"

namespace trireme {

/// pp pipeline, dp data, cp context, tp tensor; in the expert view also ep expert and edp expert data parallel.
enum class Axis { pp, dp, cp, tp, ep, edp };

inline constexpr std::array kAxes{Axis::pp, Axis::dp, Axis::cp, Axis::tp, Axis::ep, Axis::edp};

constexpr const char* name(Axis axis) {
  constexpr std::array<const char*, kAxes.size()> kNames{"pp", "dp", "cp", "tp", "ep", "edp"};
  return kNames[static_cast<std::size_t>(axis)];
}

inline Axis parse_axis(std::string_view word) {
  for (Axis axis : kAxes)
    if (word == name(axis)) return axis;
  throw ConfigError(text("axis \"", word, "\": must be one of pp, dp, cp, tp, ep, edp"));
}

/// A set of axes: contains, union |, intersection &, difference -; iterates in the order of the enum.
class AxisSet {
 public:
  class Iterator {
   public:
    constexpr explicit Iterator(std::uint32_t bits) : bits_(bits) {}
    constexpr Axis operator*() const { return static_cast<Axis>(std::countr_zero(bits_)); }
    constexpr Iterator& operator++() {
      bits_ &= bits_ - 1;  // clears the lowest set bit
      return *this;
    }
    constexpr bool operator==(const Iterator&) const = default;

   private:
    std::uint32_t bits_;
  };

  constexpr AxisSet() = default;
  constexpr AxisSet(Axis axis) : bits_(bit(axis)) {}  // implicit on purpose: peers(rank, Axis::tp)
  constexpr AxisSet(std::initializer_list<Axis> axes) {
    for (Axis axis : axes) bits_ |= bit(axis);
  }

  constexpr bool contains(Axis axis) const { return (bits_ & bit(axis)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr int size() const { return std::popcount(bits_); }
  constexpr Iterator begin() const { return Iterator(bits_); }
  constexpr Iterator end() const { return Iterator(0); }

  friend constexpr AxisSet operator|(AxisSet a, AxisSet b) { return from_bits(a.bits_ | b.bits_); }
  friend constexpr AxisSet operator&(AxisSet a, AxisSet b) { return from_bits(a.bits_ & b.bits_); }
  friend constexpr AxisSet operator-(AxisSet a, AxisSet b) { return from_bits(a.bits_ & ~b.bits_); }
  constexpr bool operator==(const AxisSet&) const = default;

  /// "dp,cp"
  std::string str() const {
    std::string joined;
    for (Axis axis : *this) {
      if (!joined.empty()) joined += ',';
      joined += name(axis);
    }
    return joined;
  }

 private:
  static constexpr std::uint32_t bit(Axis axis) { return std::uint32_t{1} << static_cast<std::uint32_t>(axis); }
  static constexpr AxisSet from_bits(std::uint32_t bits) {
    AxisSet set;
    set.bits_ = bits;
    return set;
  }

  std::uint32_t bits_ = 0;
};

}  // namespace trireme
