#include "trireme/comm/group.hpp"

#include <csignal>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/comm/rank_order.hpp"
#include "trireme/comm/self_group.hpp"
#include "trireme/testing/gloo_threads.hpp"
#include "trireme/testing/temp_folder.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<int> ranks_below(int n) {
  std::vector<int> ranks;
  for (int r = 0; r < n; ++r) ranks.push_back(r);
  return ranks;
}

TEST(PendingDeathTest, DroppedUnwaitedStopsTheProgramWithItsName) {
  EXPECT_DEATH(
      {
        SelfGroup group;
        {
          Pending dropped = group.all_reduce(at::ones({3}));
        }
      },
      "all_reduce sum f32.3. group solo.0. seq 1 was started but never waited for");
}

TEST(Pending, IsLetGoWhileAnExceptionUnwinds) {
  SelfGroup group;
  EXPECT_THROW(
      {
        Pending in_flight = group.all_reduce(at::ones({3}));
        throw std::runtime_error("something else");
      },
      std::runtime_error);
}

TEST(Pending, OwnsItsTensors) {
  run_ranks(2, [](Group& group) {
    Pending sum = group.all_reduce_(at::full({1000}, 2.0));  // the caller keeps no reference
    EXPECT_TRUE(at::equal(std::move(sum).wait(), at::full({1000}, 4.0)));
  });
}

TEST(Group, KnowsItsRanks) {
  run_ranks(4, [](World& world) {
    if (world.rank() == 2) return;
    const auto group = world.make_group("odd", {3, 1, 0});
    EXPECT_EQ(group->size(), 3);
    EXPECT_EQ(group->name(), "odd");
    EXPECT_EQ(group->str(), "odd{3,1,0}");
    EXPECT_EQ(group->world_ranks()[static_cast<std::size_t>(group->rank())], world.rank());
  });
  EXPECT_EQ((Membership{"dp", 0, ranks_below(32)}.str()), "dp{0,1,2,3,4,5,6,7,...,31: 32 ranks}");
}

TEST(Group, AWorldRefusesAGroupThatCannotBe) {
  run_ranks(2, [](World& world) {
    EXPECT_THAT(message_of<ConfigError>([&] { world.make_group("a", {0, 2}); }), HasSubstr("must be from 0 to 1"));
    EXPECT_THAT(message_of<ConfigError>([&] { world.make_group("a", {0, 0}); }), HasSubstr("twice"));
    EXPECT_THAT(message_of<ConfigError>([&] { world.make_group("a", {1 - world.rank()}); }), HasSubstr("is not in it"));
    const auto group = world.make_group("a", {0, 1});
    EXPECT_THAT(message_of<ConfigError>([&] { world.make_group("a", {0, 1}); }), HasSubstr("already exists"));
  });
}

TEST(Group, CountsCallsAndTheBytesOfARing) {
  run_ranks(4, [](Group& group) {
    group.all_reduce(at::ones({100}, at::kFloat)).wait();
    EXPECT_EQ(group.traffic(Op::all_reduce).calls, 1);
    EXPECT_EQ(group.traffic(Op::all_reduce).bytes, 2 * 400 * 3 / 4);
    group.reduce_scatter(at::ones({100}, at::kFloat)).wait();
    EXPECT_EQ(group.traffic(Op::reduce_scatter).bytes, 400 * 3 / 4);
    group.all_gather(at::ones({25}, at::kFloat)).wait();
    EXPECT_EQ(group.traffic(Op::all_gather).bytes, 400 * 3 / 4);  // with reduce_scatter: an all_reduce
    group.all_to_all(at::ones({100}, at::kFloat)).wait();
    EXPECT_EQ(group.traffic(Op::all_to_all).bytes, 400 * 3 / 4);
    group.broadcast_(at::ones({10}, at::kDouble), 2).wait();
    EXPECT_EQ(group.traffic(Op::broadcast).bytes, group.rank() == 2 ? 80 : 0);
    EXPECT_EQ(group.traffic().calls, 5);
  });
  SelfGroup alone;
  alone.all_reduce(at::ones({100})).wait();
  EXPECT_EQ(alone.traffic(Op::all_reduce).calls, 1);
  EXPECT_EQ(alone.traffic(Op::all_reduce).bytes, 0);
}

TEST(Group, RefusesATensorThatCarriesAGradient) {
  run_ranks(2, [](Group& group) {
    EXPECT_THAT(message_of<InternalError>([&] { group.all_reduce_(at::ones({3}).requires_grad_()).wait(); }),
                AllOf(HasSubstr("carries a gradient"), HasSubstr("fix:")));
    EXPECT_THAT(message_of<InternalError>([&] { group.all_gather(at::ones({3}).requires_grad_()).wait(); }),
                HasSubstr("carries a gradient"));
    const at::NoGradGuard no_grad;
    group.all_gather(at::ones({3}).requires_grad_()).wait();
  });
}

TEST(Group, ARefusedCallLeavesTheGroupUsable) {
  run_gloo_threads(2, [](World& world) {
    const auto group = world.make_group("world", {0, 1});
    EXPECT_THROW(group->all_reduce_(at::ones({4, 4}).t()).wait(), InternalError);
    EXPECT_TRUE(at::equal(group->all_reduce(at::ones({2})).wait(), at::full({2}, 2.0)));
  });
}

TEST(ThreadGroup, SaysWhoIsMissingAndWhereItWasLastSeen) {
  const std::string words = message_of<CommError>([] {
    run_ranks(3,
              [](Group& group) {
                group.recorder().set_tag({5, "forward"});
                group.all_reduce(at::ones({2})).wait();
                group.recorder().set_tag({5, "backward"});
                if (group.rank() != 1) group.all_reduce(at::ones({8})).wait();
              },
              {.timeout_s = 0.2});
  });
  EXPECT_THAT(words, AllOf(HasSubstr("all_reduce sum f32[8] #2 on group world{0,1,2} timed out after 0.2 s"),
                           HasSubstr("missing: rank 1")));
}

TEST(ThreadGroup, TellsTheOthersWhenARankFails) {
  const std::string words = message_of<std::runtime_error>([] {
    run_ranks(3, [](Group& group) {
      if (group.rank() == 2) throw std::runtime_error("the disk is full");
      const std::string told = message_of<CommError>([&] { group.barrier().wait(); });
      EXPECT_EQ(told, "rank 2 has failed: the disk is full");
    });
  });
  EXPECT_EQ(words, "the disk is full");
}

TEST(GlooGroup, SaysWhoIsMissingAndLeavesEveryRanksCalls) {
  const TempFolder folder;
  const std::string hang = (folder.path() / "hang").string();
  std::array<std::string, 3> told;
  try {
    run_gloo_threads(3,
                     [&](World& world) {
                       const auto group = world.make_group("world", ranks_below(3));
                       world.recorder().set_tag({5, "backward", 2, 9});
                       group->all_reduce(at::ones({2})).wait();
                       if (world.rank() == 1) {
                         std::this_thread::sleep_for(std::chrono::seconds(4));  // alive, but busy elsewhere
                         return;
                       }
                       try {
                         group->all_reduce(at::ones({8})).wait();
                       } catch (const CommError& e) {
                         told[static_cast<std::size_t>(world.rank())] = e.what();
                         EXPECT_EQ(e.exit_code(), ExitCode::hang_or_mismatch);
                         throw;
                       }
                     },
                     {.timeout_s = 1, .hang_folder = hang});
  } catch (const CommError&) {
  }
  // The first to time out closes its connections, so the other may see that instead.
  const std::string& words = told[0].find("timed out") != std::string::npos ? told[0] : told[2];
  EXPECT_THAT(words, AllOf(HasSubstr("all_reduce sum f32[8] #2 on group world{0,1,2} timed out after 1"),
                           HasSubstr("of 3 ranks arrived"), HasSubstr("missing: rank 1 ("),
                           HasSubstr("is in step 5 phase=backward bucket 2/9 | all_reduce sum f32[2]"),
                           HasSubstr(hang + "/rank*.txt"), HasSubstr("| waited 1"), HasSubstr("fix:")));
  for (int r = 0; r < 3; ++r) EXPECT_TRUE(std::filesystem::exists(text(hang, "/rank", r, ".txt"))) << r;
}

/// Ends the sending direction of every TCP connection of this process: the next write to it fails with EPIPE.
void shut_down_connections() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename().string());
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 && peer.ss_family != AF_UNIX)
      ::shutdown(fd, SHUT_WR);
  }
}

// In some rounds Gloo sees the end of the connection before it writes: then there is no signal to survive.
TEST(GlooGroup, ABrokenConnectionIsAnErrorAndNotASignal) {
  std::signal(SIGPIPE, SIG_DFL);  // tests before this one have made Gloo groups
  for (int round = 0; round < 10; ++round)
    run_gloo_threads(2, [](World& world) {
      const auto group = world.make_group("world", ranks_below(2));
      group->all_reduce(at::ones({2})).wait();
      if (world.rank() == 1) shut_down_connections();
      EXPECT_THROW(group->all_reduce(at::ones({8})).wait(), CommError);
    });
}

/// Sums that depend on the order of additions: large and small numbers mixed.
at::Tensor numbers_of(int rank, std::int64_t n, at::ScalarType dtype) {
  const at::Tensor i = at::arange(n, at::kDouble);
  return (at::sin(i * (1.7 + rank)) * at::pow(10, at::cos(i + 3 * rank) * 3)).to(dtype);
}

/// 40,000 is a float16, and the sum of two of them is not.
TEST(Group, AMeanInFloat16DoesNotOverflow) {
  run_ranks(2, [](World& world) {
    const auto group = world.make_group("g", {0, 1});
    const at::Tensor mine = at::full({4}, 40'000, at::kHalf);
    EXPECT_TRUE(at::equal(group->all_reduce(mine, Reduce::avg).wait(), mine));
    EXPECT_TRUE(at::equal(group->all_reduce_(mine.clone(), Reduce::avg).wait(), mine));
    EXPECT_TRUE(at::equal(group->reduce_scatter(mine, Reduce::avg).wait(), mine.narrow(0, 0, 2)));
    const at::Tensor at_root = group->reduce(mine, 1, Reduce::avg).wait();
    EXPECT_TRUE(world.rank() != 1 || at::equal(at_root, mine));
    EXPECT_EQ(mine.max().item<double>(), 40'000) << "what was given is not changed";
  });
}

class InRankOrder : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, InRankOrder, testing::Values(2, 3, 4), testing::PrintToStringParamName());

TEST_P(InRankOrder, GlooThreadsAndOneRankThatAccumulatesGiveTheSameBits) {
  const int n = GetParam();
  for (at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const std::int64_t size = 12 * 1000 + (dtype == at::kFloat ? 7 : 0);  // also one that cannot be split evenly
    std::vector<at::Tensor> all;
    for (int r = 0; r < n; ++r) all.push_back(numbers_of(r, size, dtype));
    at::Tensor want = all[0].clone();
    if (dtype == at::kFloat || dtype == at::kDouble)
      for (int r = 1; r < n; ++r) want += all[static_cast<std::size_t>(r)];
    else
      want = reduce_in_rank_order(all, Reduce::sum);
    at::Tensor want_mean = want.div(n);
    if (dtype == at::kHalf) {  // divided first
      std::vector<at::Tensor> parts;
      for (const at::Tensor& each : all) parts.push_back(each.div(n));
      want_mean = reduce_in_rank_order(parts, Reduce::sum);
    }
    const auto check = [&](Group& group) {
      const at::Tensor mine = all[static_cast<std::size_t>(group.rank())];
      EXPECT_TRUE(at::equal(group.all_reduce(mine).wait(), want));
      EXPECT_TRUE(at::equal(group.all_reduce(mine, Reduce::avg).wait(), want_mean));
      const at::Tensor at_root = group.reduce(mine, 1).wait();
      EXPECT_TRUE(group.rank() != 1 || at::equal(at_root, want));
      if (size % n == 0) {
        EXPECT_TRUE(at::equal(group.reduce_scatter(mine).wait(), want.narrow(0, group.rank() * size / n, size / n)));
      }
    };
    run_ranks(n, check);
    run_gloo_threads(n, [&](World& world) { check(*world.make_group("world", ranks_below(n))); },
                     {.deterministic = true});
  }
}

/// Ranks that start all their messages before they wait for one, sends first or receives first.
TEST(Group, MessagesInAnyOrderPassTheStrictCheck) {
  for (const bool send_first : {true, false})
    run_gloo_threads(2,
                     [&](World& world) {
                       const auto group = world.make_group("pair", {0, 1});
                       const int other = 1 - world.rank();
                       const at::Tensor mine = at::full({300'000}, world.rank() + 1.0), theirs = at::zeros({300'000});
                       const auto send = [&] { return group->send(mine, other); };
                       const auto recv = [&] { return group->recv_(theirs, other); };
                       if (send_first) {
                         Pending sent = send(), received = recv();
                         std::move(sent).wait();
                         std::move(received).wait();
                       } else {
                         Pending received = recv(), sent = send();
                         std::move(received).wait();
                         std::move(sent).wait();
                       }
                       EXPECT_TRUE(at::equal(theirs, at::full({300'000}, other + 1.0)));
                     },
                     {.check = CheckMode::strict, .timeout_s = 20});
}

}  // namespace
}  // namespace trireme
