#include "trireme/schedule/replay.hpp"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "trireme/base/error.hpp"
#include "trireme/schedule/generate.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::schedule {
namespace {

constexpr double kExact = 1e-9;  // tolerance of the closed forms; costs are sums of a few thousand terms

std::string replay_error(const Schedule& schedule) {
  return message_of<InternalError>([&] { replay(schedule); });
}

/// Calls body(p, m, v) for p <= 16, m <= 64 and, where the schedule has them, v <= 4 virtual stages.
void for_all_shapes(const std::string& name, const std::function<void(int, int, int)>& body) {
  const int max_v = name == "interleaved-1f1b" ? 4 : 1;
  for (int p = 1; p <= 16; ++p)
    for (int m = 1; m <= 64; ++m)
      for (int v = 1; v <= max_v; ++v) body(p, m, v);
}

const std::vector<ActionCosts>& costs_to_try() {
  static const std::vector<ActionCosts> costs = {{1, 1, 1}, {1, 1, 0.5}, {1, 2, 1},      {2, 1, 2},
                                                 {1, 1, 2}, {3, 2, 1.5}, {0.7, 1.9, 0.3}};
  return costs;
}

class EverySchedule : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Names, EverySchedule, testing::ValuesIn(schedule_names()), [](const auto& tested) {
  std::string name = tested.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

// Replay throws unless each microbatch passes each chunk once, forward before backward, on the rank that holds it.
TEST_P(EverySchedule, RunsWithoutDeadlockForEveryShape) {
  for_all_shapes(GetParam(), [&](int p, int m, int v) {
    const Schedule schedule = make_schedule(GetParam(), p, m, v);
    const Replay r = replay(schedule);
    const int per_rank = chunks_per_rank(parse_schedule_kind(GetParam()), v);
    ASSERT_EQ(schedule.chunks(), p * per_rank);
    // Not below the critical path: a microbatch through all chunks and back, then a weight gradient; or a rank's own
    // work.
    const double path = 2 * p + 1.0 / per_rank;
    ASSERT_GE(r.makespan, std::max(path, 3.0 * m) - kExact) << GetParam() << " p=" << p << " m=" << m << " v=" << v;
    ASSERT_LE(r.makespan, 3.0 * m * p + kExact);  // never worse than running the ranks sequentially
    for (const RankReplay& rank : r.ranks) {
      ASSERT_NEAR(rank.busy, 3.0 * m, kExact);
      ASSERT_LE(rank.peak_live, m * per_rank);
      ASSERT_LE(rank.peak_live, rank.peak_held);
    }
  });
}

TEST_P(EverySchedule, AMicrobatchMoreNeverTakesLessTime) {
  const std::string name = GetParam();
  EXPECT_TRUE(rc::check([name] {
    const int p = *rc::gen::inRange(1, 9), m = *rc::gen::inRange(1, 24), v = *rc::gen::inRange(1, 4);
    const auto time = [] { return *rc::gen::inRange(1, 20) / 4.0; };
    const ActionCosts costs{.F = time(), .I = time(), .W = time(), .transfer = time()};
    const Replay less = replay(make_schedule(name, p, m, v), costs);
    const Replay more = replay(make_schedule(name, p, m + 1, v), costs);
    RC_ASSERT(more.makespan + kExact >= less.makespan);
    ActionCosts free = costs;
    free.transfer = 0;
    RC_ASSERT(replay(make_schedule(name, p, m, v), free).makespan <= less.makespan + kExact);
  }));
}

TEST(Replay, AfabAndOneFOneBHaveTheTextbookBubbleAndActivations) {
  for (const ActionCosts& c : costs_to_try())
    for (const char* name : {"afab", "1f1b"})
      for_all_shapes(name, [&](int p, int m, int) {
        const Replay r = replay(make_schedule(name, p, m), c);
        ASSERT_NEAR(r.bubble, (p - 1) * (c.F + c.I + c.W), kExact) << name << " p=" << p << " m=" << m;
        ASSERT_NEAR(r.bubble_fraction, (p - 1.0) / m, kExact);
        ASSERT_NEAR(r.makespan, (m + p - 1) * (c.F + c.I + c.W), 1e-7);
        for (int i = 0; i < p; ++i)
          ASSERT_EQ(r.ranks[static_cast<std::size_t>(i)].peak_live,
                    name == std::string("afab") ? m : std::min(p - i, m));
      });
}

TEST(Replay, InterleavedDividesTheBubbleByTheVirtualStages) {
  for (const ActionCosts& c : costs_to_try())
    for_all_shapes("interleaved-1f1b", [&](int p, int m, int v) {
      if (m % p != 0) return;
      const Replay r = replay(make_schedule("interleaved-1f1b", p, m, v), c);
      ASSERT_NEAR(r.bubble, (p - 1) * (c.F + c.I + c.W) / v, kExact) << "p=" << p << " m=" << m << " v=" << v;
      if (v == 1) return;  // that is 1F1B, with 1F1B's activations
      // With m = p there are fewer microbatches than the formula's peak.
      ASSERT_NEAR(r.peak_live_stages(0), std::min(p * (1 + (p - 1.0) / (p * v)), double(m)), kExact);
    });
}

// The formula holds for every I, and for W <= F: with W > F the deferred weight gradients no longer fit the gaps.
TEST(Replay, Zb1pHasABubbleOfFPlusIMinusW) {
  for (const ActionCosts& c : costs_to_try())
    for_all_shapes("zb1p", [&](int p, int m, int) {
      const Replay r = replay(make_schedule("zb1p", p, m), c);
      if (m >= 2 * p && c.W <= c.F) {
        ASSERT_NEAR(r.bubble, std::max(0.0, (p - 1) * (c.F + c.I - c.W)), kExact) << "p=" << p << " m=" << m;
      }
      ASSERT_LE(r.bubble, (p - 1) * (c.F + c.I + c.W) + kExact);  // never worse than 1F1B
      for (int i = 0; i < p; ++i) {
        const RankReplay& rank = r.ranks[static_cast<std::size_t>(i)];
        ASSERT_EQ(rank.peak_live, std::min(p - i, m));
        // Inputs kept for W: rank i defers i of them, so that all ranks hold as many as 1F1B's first rank.
        ASSERT_EQ(rank.peak_held, std::min(p, m));
      }
    });
}

// Domain: F = I = W and m >= 2p - 1: no idle time in any rank's window, and p stages of activations on every rank.
// Bound elsewhere: 1F1B's bubble.
TEST(Replay, ZbvHasNoBubbleWithEqualCosts) {
  for (const ActionCosts& c : costs_to_try())
    for_all_shapes("zbv", [&](int p, int m, int) {
      const Replay r = replay(make_schedule("zbv", p, m), c);
      if (m >= 2 * p - 1 && c.F == c.I && c.I == c.W) {
        ASSERT_NEAR(r.bubble, 0, kExact) << "p=" << p << " m=" << m;
      }
      ASSERT_LE(r.bubble, (p - 1) * (c.F + c.I + c.W) + kExact) << "p=" << p << " m=" << m;
      for (int i = 0; i < p; ++i) {
        ASSERT_LE(r.ranks[static_cast<std::size_t>(i)].peak_held, 2 * p);
        if (m >= 2 * p) {
          ASSERT_NEAR(r.peak_live_stages(i), p, kExact);
        }
      }
    });
}

// Domain: m >= 2p and W <= I <= F <= I + W (F = I = W is one such): the bubble is (p-1)(F+I-W)/2 for p ranks.
// Bound elsewhere: 1F1B's bubble; activations of p + 1/2 stages, that is one chunk more than the 2p chunks.
// A paired forward and backward are counted sequentially: the cost model has no overlap.
TEST(Replay, DualpipeVHasHalfOfZb1psBubble) {
  for (const ActionCosts& c : costs_to_try())
    for_all_shapes("dualpipe-v", [&](int p, int m, int) {
      const Replay r = replay(make_schedule("dualpipe-v", p, m), c);
      if (m >= 2 * p && c.W <= c.I && c.I <= c.F && c.F <= c.I + c.W) {
        ASSERT_NEAR(r.bubble, (p - 1) * (c.F + c.I - c.W) / 2, kExact) << "p=" << p << " m=" << m;
      }
      ASSERT_LE(r.bubble, (p - 1) * (c.F + c.I + c.W) + kExact) << "p=" << p << " m=" << m;
      for (const RankReplay& rank : r.ranks) ASSERT_LE(rank.peak_held, 2 * p + 1);
      if (m > 2 * p) {
        ASSERT_EQ(r.ranks[0].peak_live, 2 * p + 1);
      }
    });
}

TEST(Replay, ATransferDelaysWhatComesFromAnotherRankOnly) {
  const ActionCosts costs{.F = 1, .I = 1, .W = 1, .transfer = 0.25};
  EXPECT_DOUBLE_EQ(replay(make_schedule("1f1b", 2, 1), costs).makespan, 6.5);  // there and back
  EXPECT_DOUBLE_EQ(replay(make_schedule("zbv", 1, 1), costs).makespan, 3);     // both chunks on one rank
}

TEST(Replay, ADagOfChunksIsReplayedByItsEdges) {
  // 0 feeds 1 and 2, which feed 3: the backward of 0 waits for both.
  Schedule diamond = parse_schedule(
      "schedule diamond microbatches 1\nchunks on ranks 0 1 2 0\nedges 0 1 0 2 1 3 2 3\n"
      "rank 0: 0F0 3F0 3B0 0B0\nrank 1: 1F0 1B0\nrank 2: 2F0 2B0\n");
  EXPECT_DOUBLE_EQ(replay(diamond).makespan,
                   9);  // three forwards and three backwards, one after the other
  diamond.programs[2] = parse_program("2F0");
  EXPECT_EQ(replay_error(diamond),
            "schedule deadlock: pp rank 0 never gets past step 3 (0B0), which waits for the input gradient of chunk 2, "
            "microbatch 0, from pp rank 2");
}

TEST(Replay, ADeadlockIsNamedBeforeAnythingRuns) {
  Schedule schedule = make_schedule("1f1b", 2, 2);
  std::swap(schedule.programs[1][0], schedule.programs[1][1]);
  EXPECT_EQ(replay_error(schedule),
            "schedule deadlock: pp rank 0 never gets past step 2 (0B0), which waits for the input gradient of chunk 1, "
            "microbatch 0, from pp rank 1");
}

TEST(Replay, AWrongScheduleIsRefusedWithRankAndStep) {
  const auto with = [](const char* rank0, const char* rank1) {
    return Schedule{.name = "s",
                    .microbatches = 1,
                    .rank_of_chunk = {0, 1},
                    .edges = chain(2),
                    .programs = {parse_program(rank0), parse_program(rank1)}};
  };
  EXPECT_EQ(replay_error(with("0F0 0B0", "1F0 1B0")), "no error");
  EXPECT_EQ(replay_error(with("0F0 0F0 0B0", "1F0 1B0")),
            "schedule s: pp rank 0, step 1 (0F0): this forward ran before");
  EXPECT_EQ(replay_error(with("0F0 0B0 0W0", "1F0 1B0")),
            "schedule s: pp rank 0, step 2 (0W0): this weight gradient was computed before");
  EXPECT_EQ(replay_error(with("0F0 0I0 0B0", "1F0 1B0")),
            "schedule s: pp rank 0, step 2 (0B0): this input gradient was computed before");
  EXPECT_EQ(replay_error(with("0F0 0W0 0I0", "1F0 1B0")),
            "schedule deadlock: pp rank 0 never gets past step 1 (0W0), which waits for the input gradient of chunk 0, "
            "microbatch 0, from pp rank 0");
  EXPECT_EQ(replay_error(with("0F0 0I0", "1F0 1B0")),
            "schedule s: pp rank 0 never computes the weight gradient of chunk 0, microbatch 0");
  EXPECT_EQ(replay_error(with("0F0 1B0", "1F0 1B0")), "schedule s: pp rank 0, step 1 (1B0): chunk 1 is on pp rank 1");
  EXPECT_EQ(replay_error(with("0F1", "1F0 1B0")), "schedule s: pp rank 0, step 0 (0F1): there are only 1 microbatches");
  EXPECT_EQ(replay_error(with("2F0", "1F0 1B0")), "schedule s: pp rank 0, step 0 (2F0): there are only 2 chunks");
}

TEST(Replay, EdgesAndRanksThatAreNotThereAreRefused) {
  Schedule schedule = make_schedule("1f1b", 2, 1);
  schedule.edges = {{0, 2}};
  EXPECT_EQ(replay_error(schedule), "schedule 1f1b: the edge 0 -> 2 names a chunk that is not there (2 chunks)");
  schedule.edges = {{-1, 1}};
  EXPECT_EQ(replay_error(schedule), "schedule 1f1b: the edge -1 -> 1 names a chunk that is not there (2 chunks)");
  schedule = make_schedule("1f1b", 2, 1);
  schedule.rank_of_chunk[1] = 2;
  EXPECT_EQ(replay_error(schedule), "schedule 1f1b: a chunk is on pp rank 2, but there are 2");
}

// Every schedule at sizes far beyond those above. `make campaign` runs all of them, `make test` a few.
TEST(Campaign, EveryScheduleOnManyRanks) {
  const bool all = std::getenv("TRIREME_CAMPAIGN") != nullptr;
  const int step = all ? 1 : 23;
  std::int64_t shapes = 0;
  for (const std::string& name : schedule_names())
    for (int p = 17; p <= 64; p += step)
      for (int m = 1; m <= 3 * p; m += all ? 3 : 41)
        for (const int v : {2, 5, 8}) {
          if (v > 2 && name != "interleaved-1f1b") continue;
          const Replay r = replay(make_schedule(name, p, m, v));
          ++shapes;
          ASSERT_LE(r.bubble, 3.0 * (p - 1) + kExact) << name << " p=" << p << " m=" << m << " v=" << v;
          if (name == "zbv" && m >= 2 * p - 1) {
            ASSERT_NEAR(r.bubble, 0, kExact) << "p=" << p << " m=" << m;
          }
          if (name == "dualpipe-v" && m >= 2 * p) {
            ASSERT_NEAR(r.bubble, (p - 1) / 2.0, kExact) << "p=" << p << " m=" << m;
          }
          if (name == "zb1p" && m >= 2 * p) {
            ASSERT_NEAR(r.bubble, p - 1, kExact) << "p=" << p << " m=" << m;
          }
        }
  std::cout << shapes << " shapes\n";
}

}  // namespace
}  // namespace trireme::schedule
