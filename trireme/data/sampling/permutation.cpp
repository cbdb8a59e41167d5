#include "trireme/data/sampling/permutation.hpp"

#include <bit>

#include "trireme/base/error.hpp"

namespace trireme::data {
namespace {

// Note [Permutation by rounds]: i is written as (row, column) of a table with 2^k columns and the fewest rows that hold
// n elements. A round rotates each column along the rows, or each row along the columns, by a keyed hash of the column
// (the row) index: a Feistel network, whose rounds are invertible for any hash. The table exceeds n elements by less
// than one row, that is, by the order of sqrt(n); an element that lands on one of these goes through the rounds again
// until it does not (cycle walking), which keeps the map one-to-one on the n.
//
// The hash: a product with a 64-bit key, because that makes the results of two inputs independent for random keys, and
// its upper half xored with its middle, because products of neighbours alone are evenly spaced. Six rounds pass all
// tests that we know of; eight are used. If a table has few rows, a round has few shifts to choose from, and all
// permutations become equally likely only after more rounds.
constexpr std::uint64_t kSmall = 256;

std::uint32_t hash(std::uint32_t x, std::uint64_t factor, std::uint64_t offset) {
  const std::uint64_t y = x * factor + offset;
  return static_cast<std::uint32_t>(y >> 32) ^ static_cast<std::uint32_t>(y >> 9);
}

/// In [0, count), from the upper bits. 32-bit operands, because that product costs a third of a 64-bit one.
std::uint32_t scaled(std::uint32_t bits, std::uint32_t count) {
  return static_cast<std::uint32_t>((std::uint64_t{bits} * count) >> 32);
}
std::uint32_t upper_bits(std::uint32_t bits, int count) {
  return static_cast<std::uint32_t>((std::uint64_t{bits} << count) >> 32);
}

/// The finaliser of splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

}  // namespace

Permutation::Permutation(const RandomStream& stream, std::uint64_t number, std::uint64_t n) : size_(n) {
  require(1 <= n && n <= kMaxSize, "a permutation of ", n, " elements: must be from 1 to 2^62");
  column_bits_ = static_cast<int>(std::bit_width(n - 1)) / 2;
  const std::uint64_t columns = std::uint64_t{1} << column_bits_;
  rows_ = static_cast<std::uint32_t>((n + columns - 1) >> column_bits_);
  rounds_ = n < kSmall ? kRoundsOfSmall : kRounds;
  // All keys are derived from 128 bits of the stream: Philox for each key would cost more than many lookups.
  std::uint64_t state = stream.bits(2 * number);
  const std::uint64_t stride = stream.bits(2 * number + 1) | 1;
  for (int i = 0; i < rounds_; ++i) {
    round_[static_cast<std::size_t>(i)].factor = mixed(state += stride) | 1;
    round_[static_cast<std::size_t>(i)].offset = mixed(state += stride);
  }
}

std::uint64_t Permutation::operator()(std::uint64_t i) const {
  require(i < size_, "place ", i, " of a permutation of ", size_);
  const std::uint64_t columns = std::uint64_t{1} << column_bits_;
  do {
    auto row = static_cast<std::uint32_t>(i >> column_bits_), column = static_cast<std::uint32_t>(i & (columns - 1));
    for (const Round *round = round_.data(), *end = round + rounds_; round != end; round += 2) {
      const std::uint32_t shifted = row + scaled(hash(column, round[0].factor, round[0].offset), rows_);
      row = shifted >= rows_ ? shifted - rows_ : shifted;
      column ^= upper_bits(hash(row, round[1].factor, round[1].offset), column_bits_);
    }
    i = std::uint64_t{row} << column_bits_ | column;
  } while (i >= size_);
  return i;
}

std::uint64_t Permutation::inverse(std::uint64_t x) const {
  require(x < size_, "element ", x, " of a permutation of ", size_);
  const std::uint64_t columns = std::uint64_t{1} << column_bits_;
  do {
    auto row = static_cast<std::uint32_t>(x >> column_bits_), column = static_cast<std::uint32_t>(x & (columns - 1));
    for (const Round *begin = round_.data(), *round = begin + rounds_; round != begin; round -= 2) {
      column ^= upper_bits(hash(row, round[-1].factor, round[-1].offset), column_bits_);
      const std::uint32_t shift = scaled(hash(column, round[-2].factor, round[-2].offset), rows_);
      row = row >= shift ? row - shift : row + rows_ - shift;
    }
    x = std::uint64_t{row} << column_bits_ | column;
  } while (x >= size_);
  return x;
}

}  // namespace trireme::data
