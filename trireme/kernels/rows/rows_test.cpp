#include "trireme/kernels/rows/rows.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <set>
#include <thread>

#include "trireme/testing/kernels_helpers.hpp"

namespace trireme::kernels::detail {
namespace {

TEST(Rows, EveryPartIsVisitedOnce) {
  const int before = at::get_num_threads();
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    for (const std::int64_t count : {0, 1, 2, 5, 1000}) {
      std::vector<int> visits(static_cast<std::size_t>(count));
      over_parts(count, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first; i < last; ++i) ++visits[static_cast<std::size_t>(i)];
      });
      EXPECT_THAT(visits, testing::Each(1)) << count << " parts on " << threads << " threads";
    }
  }
  at::set_num_threads(before);
}

TEST(Rows, AreWorkedOnBySeveralThreads) {
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  std::mutex lock;
  std::set<std::thread::id> threads;
  over_rows(64, 4096, [&](std::int64_t, std::int64_t) {
    const std::scoped_lock hold(lock);
    threads.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(threads.size(), 2U);
  at::set_num_threads(before);
}

TEST(Rows, ErrorsOfAPartComeBack) {
  EXPECT_THROW(over_parts(8, [](std::int64_t, std::int64_t) { throw DataError("of a part"); }), DataError);
}

/// The error of our exp compared with libm's, in ulp of the result.
template <class T>
double worst_exp_error(double from, double to) {
  double worst = 0;
  constexpr int kSteps = 40'000, kCount = Lanes<T>::kCount;
  for (int step = 0; step < kSteps; step += kCount) {
    T x[kCount], y[kCount];
    for (int i = 0; i < kCount; ++i) x[i] = static_cast<T>(from + (to - from) * (step + i) / kSteps);
    store(y, exp(load(x, AllLanes{})), AllLanes{});
    for (int i = 0; i < kCount; ++i) {
      const long double truth = std::exp(static_cast<long double>(x[i]));
      const T near = static_cast<T>(truth);
      const long double ulp = static_cast<long double>(std::nextafter(near, std::numeric_limits<T>::infinity())) - near;
      worst = std::max(worst, static_cast<double>(std::abs(y[i] - truth) / ulp));
    }
  }
  return worst;
}

TEST(Lanes, ExpIsExact) {
  EXPECT_LE(worst_exp_error<float>(-87, 88.7), 1.2);
  EXPECT_LE(worst_exp_error<float>(-104, -87), 1.2);  // subnormal
  EXPECT_LE(worst_exp_error<double>(-700, 709), 1.2);
}

template <class T>
void expect_exp_at_the_ends() {
  constexpr T inf = std::numeric_limits<T>::infinity();
  T x[Lanes<T>::kCount] = {0, inf, -inf, std::numeric_limits<T>::quiet_NaN(), 1000, -1000}, y[Lanes<T>::kCount];
  store(y, exp(load(x, AllLanes{})), AllLanes{});
  EXPECT_EQ(y[0], 1);
  EXPECT_EQ(y[1], inf);
  EXPECT_EQ(y[2], 0);
  EXPECT_TRUE(std::isnan(y[3]));
  EXPECT_EQ(y[4], inf);
  EXPECT_EQ(y[5], 0);
}

TEST(Lanes, ExpIsRightAtTheEnds) {
  expect_exp_at_the_ends<float>();
  expect_exp_at_the_ends<double>();
}

TEST(Lanes, BFloat16IsRoundedAsTorchRounds) {
  constexpr int kCount = Lanes<float>::kCount;
  for (std::uint32_t high = 0; high < 0x10000; high += 7)
    for (const std::uint32_t low : {0U, 1U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
      float x[kCount] = {bits_of<float>(high << 16 | low)};
      c10::BFloat16 y[kCount];
      store(y, load(x, AllLanes{}), AllLanes{});
      const c10::BFloat16 truth(x[0]);
      ASSERT_TRUE(y[0].x == truth.x || (std::isnan(x[0]) && std::isnan(static_cast<float>(y[0])))) << x[0];
    }
}

}  // namespace
}  // namespace trireme::kernels::detail
