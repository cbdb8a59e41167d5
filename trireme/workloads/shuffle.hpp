#pragma once
// A random order. Header only.
#include <cstdint>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/philox.hpp"

namespace trireme::workloads {

/// 0 ... n - 1 in random order. Not std::shuffle: its result differs between standard libraries.
inline std::vector<std::int64_t> random_order(std::int64_t n, std::uint64_t seed, std::string_view purpose) {
  const RandomStream random(seed, purpose);
  std::vector<std::int64_t> out(static_cast<std::size_t>(n));
  std::iota(out.begin(), out.end(), std::int64_t{0});
  for (std::size_t i = out.size(); i > 1; --i) std::swap(out[i - 1], out[random.below(i, i)]);
  return out;
}

}  // namespace trireme::workloads
