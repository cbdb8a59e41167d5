#pragma once
// Counter-based random numbers without state: each is a pure function of (seed, purpose, index), so that ranks generate
// only the elements they own, in any order, and all layouts of a run see the same numbers.
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

#include "trireme/base/error.hpp"
#include "trireme/base/fnv.hpp"

namespace trireme {

/// Philox 4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011): 128 bits per counter and
/// key.
constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                  std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key = {key[0] + 0x9E3779B9, key[1] + 0xBB67AE85};
  }
  return counter;
}

/// The random stream of one seed and one purpose ("init layers.3.mlp.up", "dropout", "shuffle epoch 2").
///
/// Key = seed; counter = (index / 2, stream id), so a block of 128 bits holds elements 2k and 2k + 1. The stream id is
/// the 64-bit FNV-1a hash of the purpose: of a million purposes, two share a stream with probability 3e-8. All
/// checkpoints and golden test values depend on this mapping: it must not change.
///
/// bits, below and the uniforms are the same on every machine; normal uses libm, whose last bit may differ.
class RandomStream {
 public:
  constexpr RandomStream(std::uint64_t seed, std::string_view purpose) : seed_(seed), id_(fnv1a(purpose)) {}

  constexpr std::uint64_t bits(std::uint64_t i) const { return block(i / 2)[i % 2]; }

  /// In [0, 1), a multiple of 2^-53.
  constexpr double uniform(std::uint64_t i) const { return unit_interval(bits(i)); }

  /// In [0, 1), a multiple of 2^-24. Not uniform() rounded: that could be 1.
  constexpr float uniform_float(std::uint64_t i) const { return static_cast<float>(bits(i) >> 40) * 0x1p-24F; }

  /// One of 0 ... n - 1: the high half of bits(i) * n. Each has probability 1/n to within 2^-64, that is, a relative
  /// bias below n / 2^64; there is no rejection sampling, so element i costs one block for any n.
  constexpr std::uint64_t below(std::uint64_t i, std::uint64_t n) const {
    if (n == 0) throw InternalError("RandomStream::below: there is no number below 0");
    return static_cast<std::uint64_t>((uint128{bits(i)} * n) >> 64);
  }

  /// Mean 0, variance 1, within +-8.6.
  double normal(std::uint64_t i) const { return normal_pair(i / 2)[i % 2]; }

  /// normal(2k) and normal(2k + 1) at the cost of one, for loops over many elements.
  std::array<double, 2> normal_pair(std::uint64_t k) const {
    const auto [a, b] = block(k);
    // Box-Muller. 1 - u is in (0, 1]: its logarithm is finite.
    const double radius = std::sqrt(-2.0 * std::log(1.0 - unit_interval(a)));
    const double angle = 2.0 * std::numbers::pi * unit_interval(b);
    return {radius * std::cos(angle), radius * std::sin(angle)};
  }

 private:
  __extension__ typedef unsigned __int128 uint128;  // the only form that nvcc accepts

  static constexpr double unit_interval(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

  constexpr std::array<std::uint64_t, 2> block(std::uint64_t k) const {
    const auto word = philox4x32({low(k), high(k), low(id_), high(id_)}, {low(seed_), high(seed_)});
    return {word[0] | std::uint64_t{word[1]} << 32, word[2] | std::uint64_t{word[3]} << 32};
  }

  static constexpr std::uint32_t low(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
  static constexpr std::uint32_t high(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }

  std::uint64_t seed_;
  std::uint64_t id_;
};

}  // namespace trireme
