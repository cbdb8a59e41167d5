// Groups over shared memory: streams longer than their rings, waits in several groups, sums in rank order, ranks that
// end, and what happens where memory cannot be shared. The operations themselves: comm/conformance_test.cpp.
#include <array>
#include <atomic>
#include <chrono>
#include <latch>
#include <thread>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/comm/mesh.hpp"
#include "trireme/comm/rank_order.hpp"
#include "trireme/testing/gloo_threads.hpp"

namespace trireme {
namespace {

using testing::HasSubstr;

std::vector<int> all_ranks(const World& world) {
  std::vector<int> ranks;
  for (int r = 0; r < world.size(); ++r) ranks.push_back(r);
  return ranks;
}

std::unique_ptr<Group> world_group(World& world) {
  auto group = world.make_group("world", all_ranks(world));
  EXPECT_NE(dynamic_cast<SharedMemoryGroup*>(group.get()), nullptr);
  return group;
}

/// From ranks that have not yet met it: no process has this number.
void hide(c10d::Store& store, int rank) {
  const std::string key = text("shared_memory/", rank);
  std::string place = store.get_to_str(key);
  place = "999999999" + place.substr(place.find(' '));
  store.set(key, std::vector<std::uint8_t>(place.begin(), place.end()));
}

at::Tensor values_of(int rank, std::int64_t n, at::ScalarType dtype = at::kFloat) {
  return ((at::arange(n, at::kFloat) * 0.37 + 1.7 * rank).sin() * 3).to(dtype);
}

TEST(ByteStream, IsReadAsItWasWrittenThroughManyTurnsOfItsRing) {
  constexpr std::size_t kCapacity = 256;
  std::array<StreamCursor, 3> cursors{};
  std::array<std::byte, kCapacity> ring{};
  ByteStream stream(cursors.data(), 2, ring.data(), kCapacity);
  std::size_t written = 0, read = 0;
  for (int turn = 0; turn < 3000; ++turn) {
    std::array<std::byte, 100> some{};
    for (std::size_t i = 0; i < some.size(); ++i) some[i] = static_cast<std::byte>(written + i);
    written += stream.write(std::span(some).first(static_cast<std::size_t>(turn) % 100));
    EXPECT_LE(written - read, kCapacity);
    const auto next = stream.peek(0);
    for (std::size_t i = 0; i < next.size(); ++i) ASSERT_EQ(next[i], static_cast<std::byte>(read + i));
    const std::size_t n = std::min(next.size(), static_cast<std::size_t>(turn) % 37);
    (void)stream.consume(0, n);
    (void)stream.consume(1, n);
    read += n;
  }
  EXPECT_GT(read, 20 * kCapacity);
}

TEST(ByteStream, AFullRingWaitsForItsSlowestReader) {
  std::array<StreamCursor, 3> cursors{};
  std::array<std::byte, 64> ring{};
  ByteStream stream(cursors.data(), 2, ring.data(), 64);
  const std::array<std::byte, 64> some{};
  EXPECT_EQ(stream.write(some), 64U);
  EXPECT_FALSE(stream.consume(0, 64));
  EXPECT_EQ(stream.room(), 0U);
  EXPECT_TRUE(stream.waits_for_room());
  EXPECT_TRUE(stream.is_slow(1));
  EXPECT_FALSE(stream.is_slow(0));
  EXPECT_TRUE(stream.consume(1, 10)) << "the writer waits for it";
  EXPECT_FALSE(stream.waits_for_room());
  EXPECT_FALSE(stream.consume(1, 1000)) << "a reader may skip what is not yet written";
  EXPECT_EQ(stream.room(), 64U);
}

TEST(SharedMemoryGroup, SumsAreInRankOrderForEverySizeAndDtype) {
  for (const int ranks : {2, 3, 4})
    run_shared_memory_threads(ranks, [&](World& world) {
      const auto group = world_group(world);
      for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kDouble})
        for (const std::int64_t n : {1, 1000, 8191, 8193, 3'000'001}) {
          std::vector<at::Tensor> by_rank;
          for (int r = 0; r < ranks; ++r) by_rank.push_back(values_of(r, n, dtype));
          const at::Tensor expected = reduce_in_rank_order(by_rank, Reduce::sum);
          EXPECT_TRUE(at::equal(group->all_reduce(by_rank[static_cast<std::size_t>(world.rank())]).wait(), expected))
              << ranks << " ranks, " << n;
          const std::int64_t even = n / ranks * ranks;
          if (even == 0) continue;
          const at::Tensor part =
              group->reduce_scatter(by_rank[static_cast<std::size_t>(world.rank())].narrow(0, 0, even)).wait();
          EXPECT_TRUE(at::equal(part, expected.narrow(0, world.rank() * (even / ranks), even / ranks)));
        }
    });
}

TEST(SharedMemoryGroup, ManyCallsInFlightLongerThanTheirRings) {
  run_shared_memory_threads(3, [&](World& world) {
    const auto group = world_group(world);
    for (int turn = 0; turn < 3; ++turn) {
      std::vector<Pending> pending;
      for (int i = 0; i < 8; ++i)
        pending.push_back(group->all_reduce(at::full({700'000}, world.rank() + i, at::kFloat)));
      const at::Tensor all = group->all_gather(at::full({600'000}, world.rank(), at::kInt)).wait();
      for (int r = 0; r < 3; ++r) EXPECT_EQ(all.narrow(0, r * 600'000, 600'000).ne(r).sum().item<std::int64_t>(), 0);
      for (int i = 8; i-- > 0;) {  // in another order than they were started
        const at::Tensor sum = std::move(pending.back()).wait();
        pending.pop_back();
        EXPECT_EQ(sum.ne(3 + 3 * i).sum().item<std::int64_t>(), 0);
      }
    }
  });
}

// Each sends more than a ring holds before it receives.
TEST(SharedMemoryGroup, LongMessagesInBothDirectionsAtOnce) {
  run_shared_memory_threads(2, [&](World& world) {
    const auto group = world_group(world);
    const at::Tensor mine = values_of(world.rank(), 5'000'000), theirs = at::empty_like(mine);
    for (int turn = 0; turn < 2; ++turn) {
      Pending sent = group->send(mine, 1 - world.rank());
      Pending received = group->recv_(theirs, 1 - world.rank());
      std::move(sent).wait();
      std::move(received).wait();
      EXPECT_TRUE(at::equal(theirs, values_of(1 - world.rank(), 5'000'000)));
      theirs.zero_();
    }
  });
}

// Rank 0 waits in one group and rank 1 in the other: each has started what the other one needs.
TEST(SharedMemoryGroup, AWaitMovesTheCallsOfAllGroups) {
  run_shared_memory_threads(2, [&](World& world) {
    const auto a = world_group(world), b = world.make_group("again", all_ranks(world));
    for (int turn = 0; turn < 20; ++turn) {
      Pending in_a = a->all_reduce(at::full({1'000'000}, 1.0F)), in_b = b->all_reduce(at::full({1'000'000}, 2.0F));
      if (world.rank() == 0) {
        EXPECT_EQ(std::move(in_a).wait().max().item<float>(), 2);
        EXPECT_EQ(std::move(in_b).wait().max().item<float>(), 4);
      } else {
        EXPECT_EQ(std::move(in_b).wait().max().item<float>(), 4);
        EXPECT_EQ(std::move(in_a).wait().max().item<float>(), 2);
      }
    }
  });
}

TEST(SharedMemoryGroup, DoneBecomesTrueWithoutAWait) {
  run_shared_memory_threads(2, [&](World& world) {
    const auto group = world_group(world);
    Pending sum = group->all_reduce(at::ones({2'000'000}));
    while (!sum.done()) std::this_thread::yield();
    EXPECT_EQ(std::move(sum).wait().min().item<float>(), 2);
  });
}

TEST(SharedMemoryGroup, AnUnevenExchangeOfLongRows) {
  run_shared_memory_threads(3, [&](World& world) {
    const auto group = world_group(world);
    const std::int64_t me = world.rank();
    // Rank r sends (r + 1) * (to + 1) * 10,000 rows of 3.
    std::vector<std::int64_t> sent, received;
    for (std::int64_t r = 0; r < 3; ++r) {
      sent.push_back((me + 1) * (r + 1) * 10'000);
      received.push_back((r + 1) * (me + 1) * 10'000);
    }
    std::int64_t rows = 0;
    for (const std::int64_t n : sent) rows += n;
    const at::Tensor out = group->all_to_all(at::full({rows, 3}, me, at::kFloat), sent, received).wait();
    std::int64_t begin = 0;
    for (std::int64_t r = 0; r < 3; ++r) {
      const auto i = static_cast<std::size_t>(r);
      EXPECT_EQ(out.narrow(0, begin, received[i]).ne(r).sum().item<std::int64_t>(), 0);
      begin += received[i];
    }
  });
}

/// What each of the ranks gets told.
template <class Body>
std::vector<std::string> errors_of(int ranks, const CommOptions& options, Body body) {
  std::vector<std::string> told(static_cast<std::size_t>(ranks));
  try {
    run_shared_memory_threads(
        ranks,
        [&](World& world) {
          try {
            body(world);
          } catch (const std::exception& e) {
            told[static_cast<std::size_t>(world.rank())] = e.what();
            throw;
          }
        },
        options);
  } catch (const std::exception&) {
  }
  return told;
}

TEST(SharedMemoryGroup, ADifferentCallIsNamedBeforeItsDataIsUsed) {
  const auto told = errors_of(3, {.timeout_s = 20}, [](World& world) {
    const auto group = world_group(world);
    group->all_reduce(at::ones({4}), world.rank() == 1 ? Reduce::max : Reduce::sum).wait();
  });
  EXPECT_THAT(told, testing::Contains(HasSubstr("did not make the same call")));
  for (const std::string& words : told) EXPECT_NE(words, "");
}

TEST(SharedMemoryGroup, DifferentRowCountsAreNamed) {
  const auto told = errors_of(2, {.timeout_s = 20}, [](World& world) {
    const auto group = world_group(world);
    const std::int64_t rows = world.rank() == 0 ? 3 : 2;
    group->all_to_all(at::ones({4, 2}), {2, 2}, {2, rows}).wait();
  });
  EXPECT_THAT(told[0], HasSubstr("sends 2 rows to rank 0, which expects"));
}

/// Of as many bytes: without a comparison it would arrive as other numbers.
TEST(SharedMemoryGroup, AMessageOfAnotherKindIsNamed) {
  const auto told = errors_of(2, {.timeout_s = 20}, [](World& world) {
    const auto group = world_group(world);
    if (world.rank() == 0)
      group->send(at::ones({4}), 1).wait();
    else
      group->recv_(at::empty({4}, at::kInt), 0).wait();
  });
  EXPECT_THAT(told[1], HasSubstr("rank 0"));
  EXPECT_THAT(told[1], HasSubstr("f32[4]"));
  EXPECT_THAT(told[1], HasSubstr("i32[4]"));
}

TEST(SharedMemoryGroup, ARankThatMakesNoMoreCallsIsNotWaitedFor) {
  const auto begin = std::chrono::steady_clock::now();
  const auto told = errors_of(3, {.timeout_s = 100}, [](World& world) {
    const auto group = world_group(world);
    group->barrier().wait();
    if (world.rank() == 2) return;
    group->all_reduce(at::ones({4})).wait();
  });
  EXPECT_THAT(told[0], HasSubstr("rank 2"));
  EXPECT_THAT(told[1], HasSubstr("rank 2"));
  EXPECT_EQ(told[2], "");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

// Its last calls are complete for the others, though it is gone before they look.
TEST(SharedMemoryGroup, WhatARankWroteBeforeItLeftIsRead) {
  std::latch gone(1);
  run_shared_memory_threads(2, [&](World& world) {
    auto group = world_group(world);
    if (world.rank() == 1) {
      group->send(at::full({1000}, 7.0F), 0).wait();
      group.reset();
      gone.count_down();
      return;
    }
    gone.wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    const at::Tensor got = at::zeros({1000});
    group->recv_(got, 1).wait();
    EXPECT_EQ(got.min().item<float>(), 7);
  });
}

TEST(SharedMemoryGroup, TimesOutLikeOthers) {
  const auto told = errors_of(2, {.timeout_s = 1}, [](World& world) {
    const auto group = world_group(world);
    if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(4));  // alive, but busy elsewhere
    group->all_reduce(at::ones({4})).wait();
  });
  EXPECT_THAT(told[0], HasSubstr("timed out after 1.0 s: 1 of 2 ranks arrived"));
  EXPECT_THAT(told[0], HasSubstr("missing: rank 1"));
}

// A process that cannot be opened (another user's, or in a sandbox): every rank of the group uses Gloo, and it works.
TEST(SharedMemoryGroup, WhereMemoryCannotBeSharedTheGroupUsesGloo) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::latch started(3), changed(1);
  run_shared_memory_threads(
      3,
      [&](World& world) {
        started.arrive_and_wait();
        if (world.rank() == 0) {
          hide(*store, 1);
          changed.count_down();
        }
        changed.wait();
        const auto group = world.make_group("world", all_ranks(world));
        EXPECT_NE(dynamic_cast<GlooGroup*>(group.get()), nullptr);
        EXPECT_EQ(group->all_reduce(at::ones({4})).wait().sum().item<float>(), 12);
      },
      {}, store);
}

// Only the last rank cannot open the second one: the others must not go on without it.
TEST(SharedMemoryGroup, OneRankThatCannotReachAnotherIsEnoughForGloo) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::latch started(3), made(2);
  run_shared_memory_threads(
      3,
      [&](World& world) {
        started.arrive_and_wait();
        // The first two know each other already.
        if (world.rank() < 2) {
          world.make_group("pair", {0, 1})->barrier().wait();
          made.count_down();
        }
        made.wait();
        if (world.rank() == 2) {
          hide(*store, 1);
        }
        const auto group = world.make_group("world", all_ranks(world));
        EXPECT_NE(dynamic_cast<GlooGroup*>(group.get()), nullptr) << world.rank();
        EXPECT_EQ(group->all_reduce(at::ones({4})).wait().sum().item<float>(), 12);
      },
      {}, store);
}

// The ring of a call holds less than its data, and this rank waits in Gloo meanwhile: a thread moves the rest.
TEST(SharedMemoryGroup, MovesWhileItsRankWaitsInAnotherBackend) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const at::Tensor data = values_of(0, 4'000'000);
  std::latch hidden(1);
  run_shared_memory_threads(
      3,
      [&](World& world) {
        const std::unique_ptr<Group> memory = world.rank() < 2 ? world.make_group("pair", {0, 1}) : nullptr;
        if (world.rank() == 2) {
          hide(*store, 2);
          hidden.count_down();
        }
        hidden.wait();
        const auto gloo = world.make_group("world", all_ranks(world));
        ASSERT_NE(dynamic_cast<GlooGroup*>(gloo.get()), nullptr);
        // Rank 1 comes to the barrier only when it has all of rank 0's message, which waits in the barrier.
        if (world.rank() == 0) {
          Pending sent = memory->send(data, 1);
          gloo->barrier().wait();
          std::move(sent).wait();
          return;
        }
        if (world.rank() == 1) {
          const at::Tensor got = at::empty_like(data);
          memory->recv_(got, 0).wait();
          EXPECT_TRUE(at::equal(got, data));
        }
        gloo->barrier().wait();
      },
      {.timeout_s = 20}, store);
}

TEST(SharedMemoryGroup, AfterAMismatchInOneGroupOthersGoOn) {
  std::atomic<int> named = 0;
  run_shared_memory_threads(2, [&](World& world) {
    const auto a = world_group(world), b = world.make_group("again", all_ranks(world));
    try {
      a->all_reduce(at::ones({4}), world.rank() == 1 ? Reduce::max : Reduce::sum).wait();
    } catch (const CommError&) {
      ++named;
    }
    EXPECT_EQ(b->all_reduce(at::ones({4})).wait().sum().item<float>(), 8);
  });
  EXPECT_EQ(named, 2);
}

TEST(SharedMemoryGroup, DoneBecomesTrueWhenThePeerIsGone) {
  const auto told = errors_of(2, {.timeout_s = 100}, [](World& world) {
    auto group = world_group(world);
    if (world.rank() == 1) return;
    Pending sum = group->all_reduce(at::ones({4}));
    while (!sum.done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::move(sum).wait();
  });
  EXPECT_THAT(told[0], HasSubstr("rank 1"));
}

TEST(SharedMemoryGroup, ManyRanksOnFewCores) {
  run_shared_memory_threads(18, [&](World& world) {
    const auto group = world_group(world);
    const at::Tensor sum = group->all_reduce(at::full({200'003}, world.rank(), at::kFloat)).wait();
    EXPECT_EQ(sum.ne(17 * 9).sum().item<std::int64_t>(), 0);
    const at::Tensor swapped = group->all_to_all(at::full({18, 5'000}, world.rank(), at::kInt)).wait();
    for (int r = 0; r < 18; ++r) EXPECT_EQ(swapped[r].ne(r).sum().item<std::int64_t>(), 0);
  });
}

TEST(SharedMemoryGroup, ADoorbellWakesASleeperAndAProcessThatEndedIsSeen) {
  SharedMemory memory("a bell", sizeof(Doorbell));
  auto& bell = *reinterpret_cast<Doorbell*>(memory.data());
  const pid_t child = ::fork();
  if (child == 0) {
    ::usleep(50'000);
    bell.ring();
    ::_exit(0);
  }
  SharedMemoryPeer peer;
  peer.process = OwnedFd(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  const auto begin = std::chrono::steady_clock::now();
  bell.sleep(0, std::chrono::seconds(20));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_EQ(bell.rings, 1U);
  for (int i = 0; i < 500 && !peer.has_ended(); ++i) ::usleep(10'000);
  EXPECT_TRUE(peer.has_ended()) << "also before it is waited for";
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace trireme
