#include "trireme/data/sampling/permutation.hpp"

#include <cmath>
#include <map>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/layout_helpers.hpp"

namespace trireme::data {
namespace {

using Order = std::vector<std::uint64_t>;

Order first_of(const Permutation& permutation, std::uint64_t count) {
  Order order;
  for (std::uint64_t i = 0; i < count; ++i) order.push_back(permutation(i));
  return order;
}

// Computed by a second implementation, in Python with arbitrary-precision integers.
TEST(Permutation, GoldenValues) {
  EXPECT_EQ(first_of(Permutation(RandomStream(42, "shuffle 0"), 0, 10), 10), (Order{1, 0, 4, 2, 7, 3, 6, 9, 8, 5}));
  EXPECT_EQ(first_of(Permutation(RandomStream(42, "shuffle 0"), 1, 10), 10), (Order{3, 7, 5, 0, 2, 1, 6, 9, 8, 4}));
  EXPECT_EQ(first_of(Permutation(RandomStream(7, "shuffle 3"), 0, 1000), 10),
            (Order{998, 619, 333, 265, 993, 175, 226, 886, 498, 398}));
  EXPECT_EQ(Permutation(RandomStream(42, "shuffle 0"), 0, 1'000'003)(5), 322'972U);
  EXPECT_EQ(Permutation(RandomStream(42, "shuffle 1"), 7, (1ULL << 50) - 17)(123'456'789'012'345),
            556'430'177'430'982U);
  EXPECT_EQ(Permutation(RandomStream(1ULL << 63, "shuffle 0"), 1ULL << 40, 1ULL << 62)((1ULL << 62) - 1),
            3'194'202'514'326'392'347U);
}

TEST(Permutation, EverySmallSizeIsAPermutationWithItsInverse) {
  for (std::uint64_t n = 1; n <= 600; ++n) {
    const Permutation permutation(RandomStream(n, "small"), n, n);
    EXPECT_EQ(permutation.size(), n);
    std::vector<bool> seen(n);
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t x = permutation(i);
      ASSERT_LT(x, n);
      ASSERT_FALSE(seen[x]) << n << " has " << x << " twice";
      seen[x] = true;
      ASSERT_EQ(permutation.inverse(x), i);
    }
  }
}

RC_GTEST_PROP(PermutationProperty, OfAnySizeIsInverted, ()) {
  const auto any = [] { return *rc::gen::resize(rc::kNominalSize, rc::gen::arbitrary<std::uint64_t>()); };
  const std::uint64_t n = any() % (std::uint64_t{1} << pick(0, 62)) + 1;
  const Permutation permutation(RandomStream(any(), "large"), any() >> 8, n);
  for (int i = 0; i < 20; ++i) {
    const std::uint64_t place = any() % n, x = permutation(place);
    RC_ASSERT(x < n);
    RC_ASSERT(permutation.inverse(x) == place);
  }
}

TEST(Permutation, WrongNumbersAreRefused) {
  const RandomStream stream(1, "x");
  EXPECT_THROW(Permutation(stream, 0, 0), InternalError);
  EXPECT_THROW(Permutation(stream, 0, Permutation::kMaxSize + 1), InternalError);
  EXPECT_THROW(Permutation(stream, 0, 5)(5), InternalError);
  EXPECT_THROW(Permutation(stream, 0, 5).inverse(5), InternalError);
}

/// The chi-square statistic in standard deviations above its mean for a uniform distribution.
double excess(const std::vector<int>& counts) {
  double total = 0, squares = 0;
  for (const int count : counts) total += count;
  const double expected = total / static_cast<double>(counts.size());
  for (const int count : counts) squares += (count - expected) * (count - expected) / expected;
  const auto freedom = static_cast<double>(counts.size() - 1);
  return (squares - freedom) / std::sqrt(2 * freedom);
}

TEST(Permutation, AllOrdersOfAFewAreEquallyLikely) {
  std::map<Order, int> orders;
  for (std::uint64_t number = 0; number < 24'000; ++number)
    ++orders[first_of(Permutation(RandomStream(3, "few"), number, 5), 5)];
  std::vector<int> counts;
  for (const auto& [order, count] : orders) counts.push_back(count);
  EXPECT_EQ(counts.size(), 120U);
  EXPECT_LT(excess(counts), 5);
}

TEST(Permutation, NeighboursLandIndependently) {
  // Differences of neighbours, and coarse positions of neighbours: uniform over 64 classes.
  for (const std::uint64_t n : {1'024ULL, 65'536ULL, 1'000'003ULL, 1ULL << 30, (1ULL << 50) - 17}) {
    std::vector<int> steps(64), places(64), low_bits(64);
    for (std::uint64_t number = 0; number < 8; ++number) {
      const Permutation permutation(RandomStream(11, "neighbours"), number, n);
      const auto eighth = [&](std::uint64_t x) {
        return static_cast<std::uint64_t>(static_cast<double>(x) * 8 / static_cast<double>(n));
      };
      for (std::uint64_t i = 0; i + 1 < std::min<std::uint64_t>(n, 10'000); ++i) {
        const std::uint64_t a = permutation(i), b = permutation(i + 1), step = (b + n - a) % n;
        ++steps[static_cast<std::size_t>(static_cast<double>(step) * 64 / static_cast<double>(n))];
        ++places[eighth(a) * 8 + eighth(b)];
        ++low_bits[a % 8 * 8 + b % 8];
      }
    }
    EXPECT_LT(excess(steps), 5) << n;
    EXPECT_LT(excess(places), 5) << n;
    EXPECT_LT(excess(low_bits), 5) << n;
  }
}

TEST(Permutation, EpochsAndPurposesAreIndependent) {
  std::vector<int> epochs(64), purposes(64);
  for (std::uint64_t number = 0; number < 20'000; ++number) {
    const auto place = [&](const char* purpose, std::uint64_t epoch) {
      return static_cast<std::size_t>(Permutation(RandomStream(5, purpose), epoch, 4096)(7) / 512);
    };
    ++epochs[place("shuffle 0", number) * 8 + place("shuffle 0", number + 1)];
    ++purposes[place("shuffle 0", number) * 8 + place("shuffle 1", number)];
  }
  EXPECT_LT(excess(epochs), 5);
  EXPECT_LT(excess(purposes), 5);
}

}  // namespace
}  // namespace trireme::data
