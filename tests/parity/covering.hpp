#pragma once
// Covering arrays: a small subset of all combinations that contains every t-tuple of factor values.
#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
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
  std::map<Tuple, std::size_t> numbers;  // of all tuples, so that the search compares no vectors
  std::vector<std::vector<std::size_t>> of_choice;
  for (const auto& c : all) {
    of_choice.emplace_back();
    for (const Tuple& t : tuples(c)) of_choice.back().push_back(numbers.try_emplace(t, numbers.size()).first->second);
  }
  std::vector<bool> open(numbers.size(), true);
  std::size_t left = numbers.size();
  std::vector<std::array<int, N>> chosen;
  while (left > 0) {
    std::size_t best = 0, most = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto gain = static_cast<std::size_t>(
          std::ranges::count_if(of_choice[i], [&](std::size_t number) { return open[number]; }));
      if (gain > most) best = i, most = gain;
    }
    for (const std::size_t number : of_choice[best]) open[number] = false;
    left -= most;
    chosen.push_back(all[best]);
  }
  return chosen;
}

}  // namespace trireme::parity
