#pragma once
// A random permutation of 0 ... n - 1 that is computed on demand instead of stored.
#include <array>
#include <cstdint>

#include "trireme/base/philox.hpp"

namespace trireme::data {

/// A permutation of [0, n), selected by the stream's seed and purpose and by `number` (for example the epoch). Forward
/// and inverse cost the same for every n from 256 to 2^62, about 30 ns (three times that below 256); construction costs
/// 90 ns.
///
/// Checkpoints depend on the permutation: it must not change. permutation_test.cpp has golden values.
class Permutation {
 public:
  Permutation(const RandomStream& stream, std::uint64_t number, std::uint64_t n);

  std::uint64_t size() const { return size_; }

  /// The element at position i < n.
  std::uint64_t operator()(std::uint64_t i) const;
  /// The position of element x < n.
  std::uint64_t inverse(std::uint64_t x) const;

  static constexpr std::uint64_t kMaxSize = std::uint64_t{1} << 62;

 private:
  struct Round {
    std::uint64_t factor, offset;
  };
  static constexpr int kRounds = 8, kRoundsOfSmall = 24;

  std::uint64_t size_;
  std::uint32_t rows_;
  int column_bits_, rounds_;
  std::array<Round, kRoundsOfSmall> round_;
};

}  // namespace trireme::data
