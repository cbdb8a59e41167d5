#include "trireme/base/philox.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace trireme {
namespace {

using Words = std::array<std::uint32_t, 4>;

// The known answers of Random123 (kat_vectors, philox4x32 10); at compile time, so that it stays constexpr.
static_assert(philox4x32({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
static_assert(philox4x32({~0U, ~0U, ~0U, ~0U}, {~0U, ~0U}) == Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
static_assert(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
              Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});

// Computed by a second implementation, in Python with integers of any size.
TEST(RandomStream, GoldenValues) {
  constexpr RandomStream init(42, "init layers.3.mlp.up");
  static_assert(init.bits(0) == 0x7ac852ffed50d5a8);
  EXPECT_EQ(init.bits(1), 0x3f9fab1149a2550aU);
  EXPECT_EQ(init.bits(1'000'000'000'007), 0x0f9c40dea40d0f4fU);
  EXPECT_EQ(RandomStream(~0ULL, "dropout").bits(5), 0x2e2cc9dc8a694e52U);
  EXPECT_NEAR(init.uniform(0), 0.47961920498102306, 1e-12);
  EXPECT_NEAR(init.uniform(1), 0.2485300938802848, 1e-12);
  EXPECT_EQ(init.uniform_float(1), 0.2485300898551941F);
  EXPECT_EQ(init.below(0, 1000), 479U);
  EXPECT_EQ(init.below(1'000'000'000'007, 1000), 60U);
  EXPECT_NEAR(init.normal(0), 0.010556003581436699, 1e-12);
  EXPECT_NEAR(init.normal(1), 1.1429249517679414, 1e-12);
  EXPECT_NEAR(init.normal(1'000'000'000'007), 0.6867887053737759, 1e-12);
}

constexpr int kDraws = 100'000;

template <class Draw>
std::vector<double> draws(Draw draw) {
  std::vector<double> out(kDraws);
  for (int i = 0; i < kDraws; ++i) out[static_cast<std::size_t>(i)] = draw(static_cast<std::uint64_t>(i));
  return out;
}

struct Moments {
  double mean, variance, correlation_of_neighbours;
};
Moments moments(const std::vector<double>& x) {
  double sum = 0, squares = 0, products = 0;
  for (const double v : x) sum += v;
  const double mean = sum / kDraws;
  for (std::size_t i = 0; i < x.size(); ++i) {
    squares += (x[i] - mean) * (x[i] - mean);
    if (i > 0) products += (x[i] - mean) * (x[i - 1] - mean);
  }
  return {mean, squares / kDraws, products / squares};
}

/// Kolmogorov-Smirnov: sqrt(n) times the largest distance between the draws' distribution and `cdf`. Above 1.95 once in
/// a thousand seeds; the seeds here are fixed.
template <class Cdf>
double kolmogorov(std::vector<double> x, Cdf cdf) {
  std::sort(x.begin(), x.end());
  double worst = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double expected = cdf(x[static_cast<std::size_t>(i)]);
    worst = std::max({worst, std::abs(expected - 1.0 * i / kDraws), std::abs(expected - (i + 1.0) / kDraws)});
  }
  return worst * std::sqrt(kDraws);
}

TEST(RandomStream, UniformIsUniform) {
  const RandomStream stream(7, "test");
  const auto x = draws([&](std::uint64_t i) { return stream.uniform(i); });
  const auto [mean, variance, correlation] = moments(x);
  EXPECT_NEAR(mean, 0.5, 0.004);
  EXPECT_NEAR(variance, 1.0 / 12, 0.001);
  EXPECT_NEAR(correlation, 0, 4 / std::sqrt(kDraws));
  EXPECT_LT(kolmogorov(x, [](double v) { return v; }), 1.95);
}

TEST(RandomStream, UniformFloatIsUniform) {
  const RandomStream stream(8, "test");
  const auto x = draws([&](std::uint64_t i) { return stream.uniform_float(i); });
  EXPECT_LT(kolmogorov(x, [](double v) { return v; }), 1.95);
}

TEST(RandomStream, NormalIsNormal) {
  const RandomStream stream(9, "test");
  const auto x = draws([&](std::uint64_t i) { return stream.normal(i); });
  const auto [mean, variance, correlation] = moments(x);
  EXPECT_NEAR(mean, 0, 0.013);
  EXPECT_NEAR(variance, 1, 0.018);
  EXPECT_NEAR(correlation, 0, 4 / std::sqrt(kDraws));
  EXPECT_LT(kolmogorov(x, [](double v) { return 0.5 * std::erfc(-v / std::sqrt(2.0)); }), 1.95);
}

TEST(RandomStream, SquaresOfNeighbouringNormalsDoNotCorrelate) {  // they share a radius: a wrong Box-Muller shows here
  const RandomStream stream(10, "test");
  const auto x = draws([&](std::uint64_t i) { return stream.normal(i) * stream.normal(i); });
  EXPECT_NEAR(moments(x).correlation_of_neighbours, 0, 4 / std::sqrt(kDraws));
}

TEST(RandomStream, BelowIsEvenlySpread) {
  const RandomStream stream(11, "test");
  std::array<int, 7> counts{};
  for (std::uint64_t i = 0; i < kDraws; ++i) ++counts.at(stream.below(i, counts.size()));
  for (const int count : counts) EXPECT_NEAR(count, kDraws / 7.0, 500);  // 4.5 sigma
}

TEST(RandomStream, BelowZeroIsRefused) { EXPECT_THROW(RandomStream(1, "x").below(0, 0), InternalError); }

TEST(RandomStream, StaysInRange) {
  const RandomStream random(13, "inputs");
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    const RandomStream stream(random.bits(3 * i), "purpose");
    const std::uint64_t index = random.bits(3 * i + 1);
    const std::uint64_t n = random.bits(3 * i + 2) >> i % 64 | 1;  // of all sizes
    ASSERT_TRUE(stream.uniform(index) >= 0 && stream.uniform(index) < 1) << index;
    ASSERT_TRUE(stream.uniform_float(index) >= 0 && stream.uniform_float(index) < 1) << index;
    ASSERT_EQ(std::fmod(stream.uniform_float(index), 0x1p-24F), 0) << index;  // finer ones would round, and up to 1
    ASSERT_LT(std::abs(stream.normal(index)), 8.6) << index;
    ASSERT_LT(stream.below(index, n), n) << index;
  }
}

TEST(RandomStream, NormalIsOneOfItsPair) {
  const RandomStream stream(14, "test");
  for (std::uint64_t i = 0; i < 100; ++i) EXPECT_EQ(stream.normal(i), stream.normal_pair(i / 2)[i % 2]);
}

TEST(RandomStream, SeedsPurposesAndIndicesAllMatter) {
  std::set<std::uint64_t> seen;
  std::size_t asked = 0;
  for (const std::uint64_t seed : {0ULL, 1ULL, 1ULL << 32, 1ULL << 63}) {
    for (const char* purpose : {"", "a", "b", "ab", "ba", "dropout"}) {
      for (const std::uint64_t i : {0ULL, 1ULL, 2ULL, 3ULL, 1ULL << 33, 1ULL << 63}) {
        seen.insert(RandomStream(seed, purpose).bits(i));
        ++asked;
      }
    }
  }
  EXPECT_EQ(seen.size(), asked);
}

TEST(RandomStream, StreamsOfNeighbouringSeedsAndPurposesDoNotCorrelate) {
  const auto correlation = [](const RandomStream& a, const RandomStream& b) {
    double sum = 0;
    for (std::uint64_t i = 0; i < kDraws; ++i) sum += (a.uniform(i) - 0.5) * (b.uniform(i) - 0.5);
    return 12 * sum / kDraws;
  };
  EXPECT_NEAR(correlation(RandomStream(1, "x"), RandomStream(2, "x")), 0, 4 / std::sqrt(kDraws));
  EXPECT_NEAR(correlation(RandomStream(1, "layers.1"), RandomStream(1, "layers.2")), 0, 4 / std::sqrt(kDraws));
}

TEST(RandomStream, ValueDoesNotDependOnOrderOrSubset) {
  const RandomStream stream(12, "weights");
  const auto all = draws([&](std::uint64_t i) { return stream.normal(i); });
  for (int i = kDraws - 1; i >= 0; i -= 37) {  // backwards, every 37th, from a new object
    EXPECT_EQ(RandomStream(12, "weights").normal(static_cast<std::uint64_t>(i)), all[static_cast<std::size_t>(i)]);
  }
}

}  // namespace
}  // namespace trireme
