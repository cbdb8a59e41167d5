#include "trireme/comm/calls/mismatch.hpp"

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/testing/gloo_threads.hpp"
#include "trireme/testing/mismatched_step.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct MismatchTrial {
  std::string kind;
  int who, at;
};

std::vector<MismatchTrial> all_mismatches() {
  std::vector<MismatchTrial> trials;
  for (const std::string& kind : mismatch_kinds())
    for (int who = 0; who < 4; ++who)
      for (int at = 0; at < MismatchedStep::kPlaces; ++at) trials.push_back({kind, who, at});
  return trials;
}

/// The error of each rank; empty if it did not throw.
using Thrown = std::array<std::string, 4>;

template <class RunRanks>
Thrown thrown_by(const MismatchTrial& trial, RunRanks run, std::atomic<int>& touched) {
  Thrown thrown;
  const Grid grid = Grid::dense({.dp = 2, .tp = 2});
  try {
    run([&](World& world) {
      std::optional<Mesh> mesh;
      std::optional<MismatchedStep> step;
      try {
        mesh.emplace(grid, world);  // the others may fail before this rank has finished this
        step.emplace(*mesh, trial.kind, trial.who, trial.at);
        step->run();
      } catch (const CommError& e) {
        thrown[static_cast<std::size_t>(world.rank())] = e.what();
        if (step && !step->untouched()) ++touched;
        throw;
      }
    });
  } catch (const CommError&) {
  }
  return thrown;
}

/// At least one rank names both ranks and both calls, or the missing ranks; and no rank completes its step.
void expect_named(const MismatchTrial& trial, const Thrown& thrown) {
  int named = 0;
  for (const std::string& words : thrown) {
    EXPECT_NE(words, "") << "a rank ended its step: " << trial.kind << " rank " << trial.who << " call " << trial.at;
    const bool both =
        words.find("did not make the same") != std::string::npos && words.find("\n  rank ") != std::string::npos;
    if (both || words.find("missing: rank") != std::string::npos) ++named;
  }
  EXPECT_GE(named, 1) << trial.kind << " rank " << trial.who << " call " << trial.at << ": " << thrown[0];
}

TEST(Mismatch, TheStepIsRightWhenNothingIsWrong) {
  run_ranks(4, [](World& world) {
    Mesh mesh(Grid::dense({.dp = 2, .tp = 2}), world);
    MismatchedStep(mesh, "", 0, 0).run();
    MismatchedStep(mesh, "", 0, 0).run();
  });
  for (CheckMode check : {CheckMode::off, CheckMode::fast, CheckMode::strict})
    run_gloo_threads(4,
                     [](World& world) {
                       Mesh mesh(Grid::dense({.dp = 2, .tp = 2}), world);
                       MismatchedStep(mesh, "", 0, 0).run();
                       MismatchedStep(mesh, "", 0, 0).run();
                     },
                     {.check = check});
}

TEST(Mismatch, AllOf224AreNamedBetweenThreads) {
  std::atomic<int> touched = 0;
  for (CheckMode check : {CheckMode::fast, CheckMode::strict})
    for (const MismatchTrial& trial : all_mismatches()) {
      const CommOptions options{.check = check, .timeout_s = 0.3};
      expect_named(trial, thrown_by(trial, [&](auto body) { run_worlds(4, options, body); }, touched));
    }
  EXPECT_EQ(touched, 0);
}

TEST(Mismatch, AllOf224AreNamedByGlooInStrictModeBeforeTheDataMoves) {
  std::atomic<int> touched = 0;
  const std::vector<MismatchTrial> trials = all_mismatches();
  std::vector<Thrown> thrown(trials.size());
  std::atomic<std::size_t> next = 0;
  {
    std::vector<std::jthread> workers;  // a trial mostly waits for ranks that are gone
    for (int w = 0; w < 16; ++w)
      workers.emplace_back([&] {
        for (std::size_t i = next++; i < trials.size(); i = next++) {
          const CommOptions options{
              .check = CheckMode::strict, .timeout_s = 5, .hang_folder = testing::TempDir() + "hang"};
          thrown[i] = thrown_by(trials[i], [&](auto body) { run_gloo_threads(4, body, options); }, touched);
        }
      });
  }
  for (std::size_t i = 0; i < trials.size(); ++i) expect_named(trials[i], thrown[i]);
  EXPECT_EQ(touched, 0);
}

/// Gloo accepts these calls and returns wrong sums: only the comparison at the end of the step detects them.
TEST(Mismatch, WhatGlooDoesNotNoticeIsNamedAtTheEndOfTheStep) {
  struct Silent {
    const char* rank_1;
    std::function<void(Mesh&, Group&)> call;
  };
  const std::vector<Silent> all{
      {"all_reduce sum i32[64]", [](Mesh&, Group& g) { g.all_reduce(at::ones({64}, at::kInt)).wait(); }},
      {"all_reduce max f32[64]", [](Mesh&, Group& g) { g.all_reduce(at::ones({64}), Reduce::max).wait(); }},
      {"all_reduce sum f32[8,8]", [](Mesh&, Group& g) { g.all_reduce(at::ones({8, 8})).wait(); }},
      {"bucket 4/9", [](Mesh& mesh, Group& g) {
         mesh.tag({1, "backward", 4, 9});
         g.all_reduce(at::ones({64})).wait();
       }}};
  for (const Silent& silent : all) {
    const std::string words = message_of<CommError>([&] {
      run_gloo_threads(2, [&](World& world) {
        Mesh mesh(Grid::dense({.dp = 2}), world);
        mesh.tag({1, "backward", 3, 9});
        Group& dp = mesh.group(Axis::dp);
        dp.all_reduce(at::ones({64})).wait();
        if (world.rank() == 1)
          silent.call(mesh, dp);
        else
          dp.all_reduce(at::ones({64})).wait();
        for (int i = 0; i < 100; ++i) dp.all_reduce(at::ones({64})).wait();  // more than the ring of last calls holds
        mesh.end_step();
      });
    });
    EXPECT_THAT(words, AllOf(HasSubstr("ranks 0 and 1 of group world{0,1} did not make the same call"),
                             HasSubstr("rank 0: #3 all_reduce sum f32[64] | step 1 phase=backward bucket 3/9"),
                             HasSubstr(silent.rank_1)));
  }
}

TEST(Mismatch, NamesBothRanksAndBothCalls) {
  run_ranks(2, [](Group& group) {
    EXPECT_THAT(message_of<CommError>([&] {
                  group.recorder().set_tag({7, "backward", 3, 17});
                  group.all_reduce(at::ones({group.rank() == 0 ? 4 : 8})).wait();
                }),
                AllOf(HasSubstr("ranks"), HasSubstr("of group world{0,1} did not make the same call"),
                      HasSubstr("rank 0: #1 all_reduce sum f32[4] | step 7 phase=backward bucket 3/17"),
                      HasSubstr("rank 1: #1 all_reduce sum f32[8] | step 7 phase=backward bucket 3/17")));
  });
}

CallRecord nth_call(std::uint64_t seq, Op op, std::int64_t size, int peer = -1) {
  CallRecord r;
  r.seq = seq;
  r.op = op;
  r.dtype = static_cast<std::int8_t>(at::kFloat);
  r.dims = 1;
  r.sizes[0] = size;
  r.peer = peer;
  return r;
}

TEST(FirstDifference, IsNoneWhereOneIsOnlyBehind) {
  RankCalls a{.rank = 0, .in_group = 0, .calls = {nth_call(1, Op::all_reduce, 4), nth_call(2, Op::all_reduce, 4)}};
  RankCalls b{.rank = 1, .in_group = 1, .calls = {nth_call(1, Op::all_reduce, 4)}};
  EXPECT_EQ(first_difference("dp{0,1}", a, b), std::nullopt);
  b.ended = true;
  EXPECT_THAT(
      *first_difference("dp{0,1}", a, b),
      AllOf(HasSubstr("rank 0: #2 all_reduce"), HasSubstr("rank 1: ended its step without that call; its last is #1")));
}

/// One rank has got the result of the check at the end of step 2, and the other has not: a link was cut meanwhile.
TEST(FirstDifference, IsNoneWhereOneIsStillAtTheEndOfTheStepBefore) {
  const auto tagged = [](CallRecord call, std::int64_t step, const char* group) {
    call.tag = Tag(step, "backward");
    std::ranges::copy(std::string_view(group), call.group);
    return call;
  };
  const CallRecord end = tagged(nth_call(3, Op::all_reduce, 1), 2, "step{0,1}"),
                   before = tagged(nth_call(3, Op::all_reduce, 4), 2, "world{0,1}");
  const auto next = [&](std::int64_t step) { return tagged(nth_call(4, Op::all_reduce, 4), step, "world{0,1}"); };
  EXPECT_EQ(first_difference({{0, {next(3)}}, {1, {before, end}}}), std::nullopt);
  EXPECT_THAT(first_difference({{0, {before, next(2)}}, {1, {before, end}}}).value_or(""),
              HasSubstr("rank 1: ended its step without that call; its last is #3"));
}

TEST(FirstDifference, ComparesMessagesInPairs) {
  const RankCalls a{.rank = 3, .in_group = 0, .calls = {nth_call(1, Op::send, 4, 1), nth_call(1, Op::recv, 6, 1)}};
  RankCalls b{.rank = 5, .in_group = 1, .calls = {nth_call(1, Op::recv, 4, 0), nth_call(1, Op::send, 6, 0)}};
  EXPECT_EQ(first_difference("pp{3,5}", a, b), std::nullopt);
  b.calls[1] = nth_call(1, Op::send, 7, 0);
  EXPECT_THAT(*first_difference("pp{3,5}", a, b),
              AllOf(HasSubstr("rank 5: #1 send f32[7] to 0"), HasSubstr("rank 3: #1 recv f32[6] from 1")));
}

void send_wrongly(World& world, int sent, int received) {
  Mesh mesh(Grid::dense({.pp = 2}), world);
  Group& pp = mesh.group(Axis::pp);
  if (pp.rank() == 0 && sent > 0) pp.send(at::ones({sent}), 1).wait();
  if (pp.rank() == 1 && received > 0) pp.recv_(at::empty({received}), 0).wait();
  mesh.end_step();
}

TEST(Mismatch, AGraphThatOneRankHasNotReplayedIsFound) {
  EXPECT_THAT(message_of<CommError>([] {
                run_gloo_threads(2,
                                 [](World& world) {
                                   Mesh mesh(Grid::dense({.tp = 2}), world);
                                   if (world.rank() == 0) mesh.group(Axis::tp).replay().wait();
                                   mesh.end_step();
                                 },
                                 {.timeout_s = 1});
              }),
              AllOf(HasSubstr("replay"), HasSubstr("rank 1: ended its step without that call")));
}

TEST(Mismatch, MessagesAreComparedToo) {
  EXPECT_THAT(message_of<CommError>([] { run_ranks(2, [](World& world) { send_wrongly(world, 4, 5); }); }),
              HasSubstr("send f32[4] to 1"));
  // A message that is never received, in the fast mode with Gloo.
  EXPECT_THAT(message_of<CommError>(
                  [] { run_gloo_threads(2, [](World& world) { send_wrongly(world, 4, 0); }, {.timeout_s = 1}); }),
              AllOf(HasSubstr("send f32[4] to 1"), HasSubstr("rank 1: ended its step without that call")));
  EXPECT_THAT(message_of<CommError>([] {
                run_gloo_threads(2, [](World& world) { send_wrongly(world, 4, 5); },
                                 {.check = CheckMode::strict, .timeout_s = 3});
              }),
              HasSubstr("send f32[4] to 1"));
}

}  // namespace
}  // namespace trireme
