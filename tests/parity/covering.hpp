#pragma once
// Covering arrays: a small subset of all combinations that contains every t-tuple of factor values.
#include <algorithm>
#include <array>
#include <cstddef>
#include <set>
#include <vector>

namespace trireme::parity {

/// Every combination of values: factor f has kValues[f] values.
template <std::size_t N>
std::vector<std::array<int, N>> all_combinations(const std::array<int, N>& values) {
  std::vector<std::array<int, N>> all;
  int count = 1;
  for (const int n : values) count *= n;
  for (int code = 0; code < count; ++code) {
    std::array<int, N> c{};
    int rest = code;
    for (std::size_t f = 0; f < N; ++f) {
      c[f] = rest % values[f];
      rest /= values[f];
    }
    all.push_back(c);
  }
  return all;
}

/// A subset of `all` that covers every possible combination of values of any `strength` factors. Greedy: always adds
/// the choice that covers the most new combinations.
template <std::size_t N>
std::vector<std::array<int, N>> covering(const std::vector<std::array<int, N>>& all, std::size_t strength) {
  using Tuple = std::vector<int>;  // factor, value, factor, value ...
  const auto tuples = [strength](const std::array<int, N>& c) {
    std::vector<Tuple> out{{}};
    for (std::size_t f = 0; f < N; ++f) {
      const std::size_t before = out.size();
      for (std::size_t i = 0; i < before; ++i)
        if (out[i].size() < 2 * strength) {
          out.push_back(out[i]);
          out.back().insert(out.back().end(), {static_cast<int>(f), c[f]});
        }
    }
    std::erase_if(out, [strength](const Tuple& t) { return t.size() != 2 * strength; });
    return out;
  };
  std::set<Tuple> open;
  for (const auto& c : all)
    for (const Tuple& t : tuples(c)) open.insert(t);
  std::vector<std::array<int, N>> chosen;
  while (!open.empty()) {
    const auto gain = [&](const std::array<int, N>& c) {
      const auto own = tuples(c);
      return std::ranges::count_if(own, [&](const Tuple& t) { return open.contains(t); });
    };
    const auto best = *std::ranges::max_element(all, {}, gain);
    for (const Tuple& t : tuples(best)) open.erase(t);
    chosen.push_back(best);
  }
  return chosen;
}

}  // namespace trireme::parity
