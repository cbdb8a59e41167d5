#include "trireme/testing/throttled_group.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/comm/self_group.hpp"
#include "trireme/testing/gradcheck.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using testing::HasSubstr;
using ThrottleClock = std::chrono::steady_clock;

double throttle_seconds_since(ThrottleClock::time_point start) {
  return std::chrono::duration<double>(ThrottleClock::now() - start).count();
}

void throttle_compute(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

/// The results of every operation, concatenated.
at::Tensor throttle_results(Group& g) {
  const std::int64_t n = g.size();
  const int me = g.rank(), next = (me + 1) % g.size(), previous = (me + g.size() - 1) % g.size();
  const at::Tensor x = normal_tensor({n, 2}, 1, text("x of rank ", me));
  std::vector<at::Tensor> all{g.all_reduce(x).wait(), g.all_reduce(x, Reduce::avg).wait(),
                              g.all_gather(x).wait(), g.reduce_scatter(x).wait(),
                              g.all_to_all(x).wait(), g.broadcast_(x.clone(), 0).wait()};
  std::vector<std::int64_t> to_next(static_cast<std::size_t>(n)), from_previous(static_cast<std::size_t>(n));
  to_next[static_cast<std::size_t>(next)] = from_previous[static_cast<std::size_t>(previous)] = n;
  all.push_back(g.all_to_all(x, to_next, from_previous).wait());
  const at::Tensor sum = g.reduce(x, 0).wait(), gathered = g.gather(x, 0).wait();
  if (me == 0) all.insert(all.end(), {sum, gathered});
  all.push_back(g.scatter_into(at::empty({1, 2}, at::kDouble), me == 0 ? x : at::Tensor(), 0).wait());
  const at::Tensor came = at::empty_like(x);
  if (n > 1) {
    g.batch({Message::send(x, next), Message::recv(came, previous)}).wait();
    all.push_back(came);
  }
  g.barrier().wait();
  for (at::Tensor& one : all) one = one.reshape(-1);
  return at::cat(all);
}

TEST(ThrottledGroup, ChangesNoResult) {
  for (const int n : {1, 2, 4})
    for (const CheckMode check : {CheckMode::off, CheckMode::strict}) {
      CommOptions options;
      options.check = check;
      run_ranks(
          n,
          [](Group& g) {
            const at::Tensor plain = throttle_results(g);
            const Traffic traffic = g.traffic();
            {
              ThrottledGroup slow(g, {.bytes_per_s = 1e9, .latency_s = 1e-4});
              EXPECT_EQ(slow.rank(), g.rank());
              EXPECT_EQ(slow.str(), g.str());
              EXPECT_TRUE(at::equal(throttle_results(slow), plain));
              slow.end_step();
              EXPECT_EQ(slow.traffic().calls, traffic.calls);
              EXPECT_EQ(slow.traffic().bytes, traffic.bytes);
            }
            // Counted only in the wrapper; afterwards the group continues with the wrapper's sequence numbers.
            EXPECT_EQ(g.traffic().bytes, traffic.bytes);
            EXPECT_TRUE(at::equal(throttle_results(g), plain));
          },
          options);
    }
}

TEST(ThrottledGroup, RecordsEachCallOnceInOneRow) {
  run_ranks(2, [](Group& g) {
    g.barrier().wait();
    {
      ThrottledGroup slow(g, {});
      slow.barrier().wait();
      slow.barrier().wait();
    }
    g.barrier().wait();
    std::vector<std::uint64_t> numbers;
    for (const CallRecord& record : g.recorder().step_calls())
      if (record.group == g.str()) numbers.push_back(record.seq);
    EXPECT_THAT(numbers, testing::ElementsAre(1, 2, 3, 4));
  });
}

// In an all_reduce of 1,000 bytes, each of two ranks sends 1,000.
constexpr std::int64_t kThrottleBytes = 1000;
at::Tensor throttle_block() { return at::ones({kThrottleBytes}, at::kByte); }

TEST(ThrottledGroup, ACallTakesItsTimeOnTheLink) {
  run_ranks(2, [](Group& g) {
    ThrottledGroup slow(g, {.bytes_per_s = 20e3, .latency_s = 0.02});  // 50 ms + 20 ms
    const auto start = ThrottleClock::now();
    Pending sum = slow.all_reduce(throttle_block());
    const bool done = sum.done();
    if (throttle_seconds_since(start) < 0.07) {
      EXPECT_FALSE(done);
    }
    const at::Tensor result = std::move(sum).wait();
    EXPECT_GE(throttle_seconds_since(start), 0.07);
    EXPECT_TRUE(at::equal(result, throttle_block() * 2));
  });
}

TEST(ThrottledGroup, CallsInARowTakeTheSumOfTheirTimes) {
  run_ranks(2, [](Group& g) {
    ThrottledGroup slow(g, {.bytes_per_s = 20e3, .latency_s = 0.02});
    const auto start = ThrottleClock::now();
    Pending first = slow.all_reduce(throttle_block()), second = slow.all_reduce(throttle_block());
    // The second waits for the link to be free; the latency does not occupy the link.
    std::move(second).wait();
    EXPECT_GE(throttle_seconds_since(start), 2 * 0.05 + 0.02);
    EXPECT_TRUE(first.done());
    std::move(first).wait();
  });
}

TEST(ThrottledGroup, TheLinkRunsWhileOneComputes) {
  run_ranks(2, [](Group& g) {
    ThrottledGroup slow(g, {.bytes_per_s = 20e3});
    const auto start = ThrottleClock::now();
    Pending sum = slow.all_reduce(throttle_block());  // 50 ms
    // It completes without a wait, while the rank does something else.
    while (!sum.done()) throttle_compute(0.001);
    EXPECT_GE(throttle_seconds_since(start), 0.05);
    std::move(sum).wait();
    // After idle time the next call starts immediately.
    const auto later = ThrottleClock::now();
    slow.all_reduce(throttle_block()).wait();
    EXPECT_GE(throttle_seconds_since(later), 0.05);
  });
}

/// The minimum time of `op` on each rank, in units of the time for kThrottleBytes.
void throttle_expect(double units_on_0, double units_on_1, const std::function<void(Group&)>& op) {
  run_ranks(2, [&](Group& g) {
    ThrottledGroup slow(g, {.bytes_per_s = 50e3});  // 20 ms per unit
    const auto start = ThrottleClock::now();
    op(slow);
    EXPECT_GE(throttle_seconds_since(start), 0.02 * (g.rank() == 0 ? units_on_0 : units_on_1));
  });
}

TEST(ThrottledGroup, BothEndsOfAMessageAreLate) {
  throttle_expect(1, 1, [](Group& g) {
    if (g.rank() == 0)
      g.send(throttle_block(), 1).wait();
    else
      g.recv_(throttle_block(), 0).wait();
  });
  throttle_expect(1, 1, [](Group& g) { g.broadcast_(throttle_block(), 0).wait(); });
  throttle_expect(1, 1, [](Group& g) { g.reduce(throttle_block(), 0).wait(); });
  throttle_expect(1, 1, [](Group& g) { g.gather(throttle_block(), 0).wait(); });
  throttle_expect(1, 1, [](Group& g) {
    g.scatter_into(throttle_block(), g.rank() == 0 ? at::ones({2 * kThrottleBytes}, at::kByte) : at::Tensor(), 0)
        .wait();
  });
  throttle_expect(1, 1, [](Group& g) { g.all_gather(throttle_block()).wait(); });
  throttle_expect(0.5, 0.5, [](Group& g) { g.all_to_all(throttle_block()).wait(); });
  // Rank 0 sends all its rows to rank 1, and receives none.
  throttle_expect(1, 1, [](Group& g) {
    if (g.rank() == 0)
      g.all_to_all(throttle_block(), {0, kThrottleBytes}, {0, 0}).wait();
    else
      g.all_to_all(at::empty({0}, at::kByte), {0, 0}, {kThrottleBytes, 0}).wait();
  });
  // Both directions at once, in one batch.
  throttle_expect(1, 1, [](Group& g) {
    const int other = 1 - g.rank();
    g.batch({Message::send(throttle_block(), other), Message::recv(throttle_block(), other)}).wait();
  });
}

TEST(ThrottledGroup, ErrorsOfTheInnerGroupComeThrough) {
  EXPECT_THAT(message_of<CommError>([] {
                run_ranks(2, [](Group& g) {
                  ThrottledGroup slow(g, {});
                  slow.all_reduce(at::ones({g.rank() + 1})).wait();
                });
              }),
              HasSubstr("all_reduce"));
  SelfGroup solo;
  EXPECT_THAT(message_of<ConfigError>([&] { ThrottledGroup slow(solo, {.bytes_per_s = 0}); }),
              HasSubstr("the bandwidth must be positive"));
}

}  // namespace
}  // namespace trireme
