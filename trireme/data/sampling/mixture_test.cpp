#include "trireme/data/sampling/mixture.hpp"

#include <cmath>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/layout_helpers.hpp"

namespace trireme::data {
namespace {

using ::testing::HasSubstr;

Mixture mixture_of(const std::vector<double>& weights, std::uint64_t seed = 1) {
  return Mixture(weights, RandomStream(seed, "mixture 0"));
}

TEST(Mixture, WeightsOfAFewDecimalsAreMetExactly) {
  const Mixture mixture = mixture_of({0.7, 0.2, 0.1});
  EXPECT_EQ(mixture.quota(0) * 10, mixture.block() * 7);
  EXPECT_EQ(mixture.quota(1) * 10, mixture.block() * 2);
  const Mixture fine = mixture_of({0.9871, 0.0128, 0.0001});
  EXPECT_EQ(fine.quota(2) * 10'000, fine.block());
  EXPECT_EQ(fine.quota(1) * 10'000, fine.block() * 128);
  const Mixture thirds = mixture_of({1, 1, 1});
  EXPECT_EQ(thirds.quota(0) * 3, thirds.block());
}

TEST(Mixture, OneSourceIsTakenInTurn) {
  const Mixture mixture = mixture_of({0.3});
  for (const std::int64_t j : {0LL, 1LL, 77LL, 1LL << 50}) {
    EXPECT_EQ(mixture.draw(j).source, 0U);
    EXPECT_EQ(mixture.draw(j).index, j);
    EXPECT_EQ(mixture.count(0, j), j);
  }
}

// Checkpoints depend on these values. Computed by a second implementation, in Python.
TEST(Mixture, GoldenValues) {
  const Mixture mixture = mixture_of({0.5, 0.3, 0.2}, 42);
  EXPECT_EQ(mixture.block(), 1030);
  std::string sources;
  for (std::int64_t j = 0; j < 40; ++j) sources += static_cast<char>('a' + mixture.draw(j).source);
  EXPECT_EQ(sources, "abacabacabacababacbacaabbaaacbaabcabaabc");
}

RC_GTEST_PROP(MixtureProperty, EverySourceIsDrawnInTurnAndKeepsItsShare, ()) {
  std::vector<double> weights(static_cast<std::size_t>(pick(1, 6)));
  for (double& weight : weights) weight = toss() ? pick(1, 9) : 0.01 + pick(0, 1'000'000) * 1e-6;
  double total = 0;
  for (const double weight : weights) total += weight;
  const Mixture mixture = mixture_of(weights, static_cast<std::uint64_t>(pick(0, 1000)));
  const auto n = static_cast<double>(weights.size());

  std::vector<std::int64_t> counts(weights.size());
  for (std::int64_t j = 0; j < std::min<std::int64_t>(mixture.block(), 5000) + 3000; ++j) {
    const Mixture::Draw draw = mixture.draw(j);
    RC_ASSERT(draw.index == counts[draw.source]);
    ++counts[draw.source];
    const double share = static_cast<double>(mixture.quota(draw.source)) / static_cast<double>(mixture.block());
    const double fair = static_cast<double>(j + 1) * share;
    RC_ASSERT(std::abs(static_cast<double>(counts[draw.source]) - fair) <= 1 + n * share);
    if (j % 997 == 0) RC_ASSERT(mixture.count(draw.source, j + 1) == counts[draw.source]);
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double share = static_cast<double>(mixture.quota(i)) / static_cast<double>(mixture.block());
    RC_ASSERT(std::abs(share / (weights[i] / total) - 1) <=
              total / (65'536 * *std::ranges::min_element(weights)) + 1e-9);
  }
}

TEST(Mixture, FarDrawsGoOnFromTheCounts) {
  const Mixture mixture = mixture_of({3, 2, 1});
  const std::int64_t far = 1'000'000'000'007;
  std::vector<std::int64_t> counts;
  for (std::size_t source = 0; source < 3; ++source) counts.push_back(mixture.count(source, far));
  EXPECT_EQ(counts[0] + counts[1] + counts[2], far);
  for (std::int64_t j = far; j < far + 2000; ++j) {
    const Mixture::Draw draw = mixture.draw(j);
    ASSERT_EQ(draw.index, counts[draw.source]++);
  }
}

TEST(Mixture, ATinyWeightIsHonouredOrRefused) {
  const Mixture mixture = mixture_of({1, 1.0 / 50'000});
  EXPECT_GE(mixture.quota(1), 1);
  EXPECT_THAT(message_of<ConfigError>([] { mixture_of({1, 1e-6}); }), HasSubstr("weight 1e-06 of a data source"));
  EXPECT_THROW(mixture_of({1, 0}), ConfigError);
  EXPECT_THROW(mixture_of({1, -1}), ConfigError);
  EXPECT_THROW(mixture_of({1, std::nan("")}), ConfigError);
  EXPECT_THROW(mixture_of({1e308, 1e308}), ConfigError);
  EXPECT_THROW(mixture_of({}), InternalError);
}

}  // namespace
}  // namespace trireme::data
