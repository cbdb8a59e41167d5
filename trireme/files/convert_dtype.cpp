#include "trireme/files/convert_dtype.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "trireme/base/error.hpp"

namespace trireme::files {
namespace {

using enum SafetensorsDtype;

constexpr std::array<std::pair<SafetensorsDtype, const char*>, 4> kTorchNames = {
    {{BF16, "bfloat16"}, {F16, "float16"}, {F32, "float32"}, {F64, "float64"}}};

/// A 16-bit format: one sign bit, E bits of exponent, M bits of fraction.
template <int E, int M>
struct Small {
  std::uint16_t bits;

  static constexpr int kBias = (1 << (E - 1)) - 1;
  static constexpr std::uint64_t kInfinity = ((std::uint64_t{1} << E) - 1) << M;

  /// Exact: a double has more of everything.
  double wide() const {
    const std::uint64_t sign = std::uint64_t{bits} >> (E + M) << 63;
    const std::uint64_t exponent = bits >> M & ((1 << E) - 1), fraction = bits & ((1 << M) - 1);
    if (exponent == (1 << E) - 1) return std::bit_cast<double>(sign | 0x7ffull << 52 | fraction << (52 - M));
    if (exponent != 0) return std::bit_cast<double>(sign | (exponent + 1023 - kBias) << 52 | fraction << (52 - M));
    const double unit = std::bit_cast<double>(std::uint64_t{1024 - kBias - M} << 52);  // of the subnormal numbers
    const double magnitude = static_cast<double>(fraction) * unit;
    return sign != 0 ? -magnitude : magnitude;
  }

  static Small nearest(double value) {
    const auto all = std::bit_cast<std::uint64_t>(value);
    const std::uint64_t sign = all >> 63 << (E + M), fraction = all & ((std::uint64_t{1} << 52) - 1);
    const int exponent = static_cast<int>(all >> 52 & 0x7ff);
    const auto made = [&](std::uint64_t magnitude) { return Small{static_cast<std::uint16_t>(sign | magnitude)}; };
    if (exponent == 0x7ff)  // a NaN becomes quiet, so that none turns into infinity
      return made(kInfinity | (fraction == 0 ? 0 : (std::uint64_t{1} << (M - 1)) | fraction >> (52 - M)));
    const int target = exponent - 1023 + kBias;  // below 1: subnormal there
    const int shift = 52 - M + (target < 1 ? 1 - target : 0);
    if (exponent == 0 || shift > 53) return made(0);
    const std::uint64_t significand = fraction | std::uint64_t{1} << 52;
    const std::uint64_t rest = significand & ((std::uint64_t{1} << shift) - 1), half = std::uint64_t{1} << (shift - 1);
    std::uint64_t kept = significand >> shift;
    if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
    // The leading bit of `kept` is one more in the exponent, and so is a carry of the rounding.
    const std::uint64_t magnitude = (target < 1 ? 0 : static_cast<std::uint64_t>(target - 1) << M) + kept;
    return made(std::min(magnitude, kInfinity));
  }
};
using Bfloat16 = Small<8, 7>;
using Float16 = Small<5, 10>;

/// The most frequent conversion, in integers: adding half of the last place that stays carries into it.
Bfloat16 nearest_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
  const std::uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
  return {static_cast<std::uint16_t>(is_nan ? bits >> 16 | 0x40 : rounded >> 16)};
}

double wide(double value) { return value; }
double wide(float value) { return value; }
double wide(Bfloat16 value) { return value.wide(); }
double wide(Float16 value) { return value.wide(); }

template <class T>
T nearest(double value) {
  if constexpr (std::is_floating_point_v<T>)
    return static_cast<T>(value);
  else
    return T::nearest(value);
}

template <class From, class To>
void convert_all(std::span<const std::byte> in, std::span<std::byte> out) {
  require(in.size() / sizeof(From) == out.size() / sizeof(To) && in.size() % sizeof(From) == 0 &&
              out.size() % sizeof(To) == 0,
          "convert_dtype: ", in.size(), " bytes cannot become ", out.size());
  const std::size_t count = in.size() / sizeof(From);
  for (std::size_t i = 0; i < count; ++i) {
    From from;
    std::memcpy(&from, in.data() + i * sizeof from, sizeof from);
    To to;
    if constexpr (std::is_same_v<From, float> && std::is_same_v<To, Bfloat16>)
      to = nearest_bfloat16(from);
    else
      to = nearest<To>(wide(from));
    std::memcpy(out.data() + i * sizeof to, &to, sizeof to);
  }
}

template <class Use>
void with_type(SafetensorsDtype dtype, Use use) {
  switch (dtype) {
    case F64: return use(double{});
    case F32: return use(float{});
    case F16: return use(Float16{});
    case BF16: return use(Bfloat16{});
    default: throw InternalError(text("convert_dtype: ", name(dtype), " is no dtype of weights"));
  }
}

}  // namespace

bool is_weight_dtype(SafetensorsDtype dtype) {
  return std::ranges::any_of(kTorchNames, [&](const auto& each) { return each.first == dtype; });
}

SafetensorsDtype weight_dtype(std::string_view torch_name, std::string_view flag) {
  for (const auto& [dtype, word] : kTorchNames)
    if (word == torch_name) return dtype;
  throw ConfigError(text(flag, " ", torch_name, ": must be bfloat16, float16, float32 or float64"));
}

const char* torch_name(SafetensorsDtype dtype) {
  for (const auto& [each, word] : kTorchNames)
    if (each == dtype) return word;
  throw InternalError(text(name(dtype), " is no dtype of weights"));
}

void convert_dtype(SafetensorsDtype from, std::span<const std::byte> in, SafetensorsDtype to,
                   std::span<std::byte> out) {
  with_type(from, [&](auto source) {
    with_type(to, [&](auto target) { convert_all<decltype(source), decltype(target)>(in, out); });
  });
}

}  // namespace trireme::files
