#include "trireme/files/convert_dtype.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::files {
namespace {

using enum SafetensorsDtype;

template <class To, class From>
std::vector<To> converted(SafetensorsDtype from, const std::vector<From>& values, SafetensorsDtype to) {
  std::vector<To> out(values.size());
  convert_dtype(from, std::as_bytes(std::span(values)), to, std::as_writable_bytes(std::span(out)));
  return out;
}

/// The value of a 16-bit number, from the definition of the format.
double value_of_bits(std::uint16_t bits, int fraction_bits) {
  const int exponent_bits = 15 - fraction_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1), fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = bits >> 15 != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1)
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

std::vector<std::uint16_t> all_bits() {
  std::vector<std::uint16_t> bits(1 << 16);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
  return bits;
}

struct Format {
  SafetensorsDtype dtype;
  int fraction_bits;
};
constexpr Format kFormats[] = {{BF16, 7}, {F16, 10}};

TEST(ConvertDtype, EverySmallNumberKeepsItsValueAndComesBack) {
  const std::vector<std::uint16_t> bits = all_bits();
  for (const auto& [dtype, fraction_bits] : kFormats) {
    const auto doubles = converted<double>(dtype, bits, F64);
    const auto floats = converted<float>(dtype, bits, F32);
    const auto from_doubles = converted<std::uint16_t>(F64, doubles, dtype);
    const auto from_floats = converted<std::uint16_t>(F32, floats, dtype);
    for (std::size_t i = 0; i < bits.size(); ++i) {
      const double wanted = value_of_bits(bits[i], fraction_bits);
      if (std::isnan(wanted)) {
        ASSERT_TRUE(std::isnan(doubles[i]) && std::isnan(floats[i])) << i;
        ASSERT_TRUE(std::isnan(value_of_bits(from_floats[i], fraction_bits))) << i;
        continue;
      }
      ASSERT_EQ(std::bit_cast<std::uint64_t>(doubles[i]), std::bit_cast<std::uint64_t>(wanted)) << i;
      ASSERT_EQ(static_cast<double>(floats[i]), wanted) << i;
      ASSERT_EQ(from_doubles[i], bits[i]);
      ASSERT_EQ(from_floats[i], bits[i]);
    }
  }
}

/// Between each two neighbours: the middle goes to the even one, everything else to the nearer one.
TEST(ConvertDtype, RoundsToNearestAndTiesToEven) {
  for (const auto& [dtype, fraction_bits] : kFormats) {
    const int largest = (dtype == BF16 ? 0x7f7f : 0x7bff);
    std::vector<double> values;
    std::vector<int> wanted;
    for (int low = 0; low < largest; ++low) {
      const double a = value_of_bits(static_cast<std::uint16_t>(low), fraction_bits),
                   b = value_of_bits(static_cast<std::uint16_t>(low + 1), fraction_bits);
      const double middle = (a + b) / 2;  // exact in a double
      for (const auto& [value, bits] :
           {std::pair(std::nextafter(middle, a), low), {middle, low + low % 2}, {std::nextafter(middle, b), low + 1}}) {
        values.push_back(value);
        wanted.push_back(bits);
        values.push_back(-value);
        wanted.push_back(bits | 0x8000);
      }
    }
    const auto got = converted<std::uint16_t>(F64, values, dtype);
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(got[i], wanted[i]) << values[i];
    // The middles are numbers of float32, too.
    std::vector<float> floats;
    for (std::size_t i = 0; i < values.size(); i += 6) {
      const auto middle = static_cast<float>(values[i + 2]);
      ASSERT_EQ(middle, values[i + 2]);
      const float lower = std::nextafter(middle, 0.0f),
                  higher = std::nextafter(middle, std::numeric_limits<float>::infinity());
      floats.insert(floats.end(), {lower, -lower, middle, -middle, higher, -higher});
    }
    const auto of_floats = converted<std::uint16_t>(F32, floats, dtype);
    for (std::size_t i = 0; i < floats.size(); ++i) ASSERT_EQ(of_floats[i], wanted[i]) << floats[i];
  }
}

TEST(ConvertDtype, TheEndsOfTheRange) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const float signalling = std::bit_cast<float>(0x7f800001u);
  const auto half = [](float value) { return converted<std::uint16_t>(F32, std::vector{value}, F16)[0]; };
  const auto brain = [](float value) { return converted<std::uint16_t>(F32, std::vector{value}, BF16)[0]; };
  EXPECT_EQ(half(65504), 0x7bff);
  EXPECT_EQ(half(std::nextafter(65520.0f, 0.0f)), 0x7bff);
  EXPECT_EQ(half(65520), 0x7c00) << "half of the next step: infinity";
  EXPECT_EQ(half(-1e30f), 0xfc00);
  EXPECT_EQ(half(std::ldexp(1.0f, -24)), 1);
  EXPECT_EQ(half(std::ldexp(1.0f, -25)), 0) << "a tie with zero";
  EXPECT_EQ(half(std::nextafter(std::ldexp(1.0f, -25), 1.0f)), 1);
  EXPECT_EQ(half(-std::ldexp(1.0f, -60)), 0x8000);
  EXPECT_EQ(brain(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(brain(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(brain(std::bit_cast<float>(0x00008001u)), 1) << "subnormal in both";
  EXPECT_EQ(brain(infinity), 0x7f80);
  EXPECT_EQ(half(-infinity), 0xfc00);
  for (const float value : {nan, -nan, signalling}) {
    EXPECT_TRUE(std::isnan(value_of_bits(half(value), 10)));
    EXPECT_TRUE(std::isnan(value_of_bits(brain(value), 7)));
  }
  const auto single = [](double value) { return converted<float>(F64, std::vector{value}, F32)[0]; };
  EXPECT_EQ(single(1e300), infinity);
  EXPECT_EQ(single(1 + std::ldexp(1.0, -24)), 1.0f) << "a tie";
  EXPECT_EQ(converted<std::uint16_t>(F64, std::vector{5e-324}, F16)[0], 0);
}

TEST(ConvertDtype, OnceAndNotTwice) {
  // Just above a tie of bfloat16, which float32 rounds to the tie: by way of float32 it would go to the even one below.
  const double value = 1 + std::ldexp(1.0, -8) + std::ldexp(1.0, -40);
  EXPECT_EQ(converted<std::uint16_t>(F64, std::vector{value}, BF16)[0], 0x3f81);
}

/// From float32 to bfloat16 there is code of its own.
TEST(ConvertDtype, FloatsAreRoundedAsDoublesAre) {
  std::mt19937 random(1);
  std::vector<float> values(200'000);
  for (float& value : values) value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
  const std::vector<double> same(values.begin(), values.end());
  const auto brains = converted<std::uint16_t>(F32, values, BF16), wanted = converted<std::uint16_t>(F64, same, BF16);
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(brains[i], wanted[i]) << values[i];
}

TEST(ConvertDtype, Names) {
  for (const auto& [dtype, word] :
       {std::pair(BF16, "bfloat16"), {F16, "float16"}, {F32, "float32"}, {F64, "float64"}}) {
    EXPECT_EQ(weight_dtype(word, "--dtype"), dtype);
    EXPECT_STREQ(torch_name(dtype), word);
    EXPECT_TRUE(is_weight_dtype(dtype));
  }
  EXPECT_FALSE(is_weight_dtype(I64));
  EXPECT_EQ(message_of<ConfigError>([] { weight_dtype("int8", "--dtype"); }),
            "--dtype int8: must be bfloat16, float16, float32 or float64");
  std::vector<std::byte> four(4), three(3);
  EXPECT_THROW(convert_dtype(F32, four, BF16, three), InternalError);
  EXPECT_THROW(convert_dtype(I32, four, F32, four), InternalError);
}

}  // namespace
}  // namespace trireme::files
