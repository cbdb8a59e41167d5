// Our Group beside the bare c10d backend that carries it, and the fast check beside none, in one run.
//   trireme launch -n N -- trireme_comm_bench [PAIRS [TURNS]]
// Both sides talk over their own Gloo group of the same processes; the turns are interleaved and medians compared.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "trireme/comm/c10d_world.hpp"
#include "trireme/comm/mesh.hpp"
#include "trireme/runtime/rank_main.hpp"
#include "trireme/runtime/rendezvous.hpp"

namespace {

using namespace trireme;
using Clock = std::chrono::steady_clock;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double seconds_of(Group& meet, const std::function<void()>& turn) {
  meet.barrier().wait();
  const auto start = Clock::now();
  turn();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Comparison {
  const char* what;
  const char* unit;
  double per_turn;  // to divide a turn's time by
  std::function<void()> ours, theirs;
};

/// A pair is some turns of ours and of theirs, alternating, the first of them in turn, so that what drifts on a shared
/// machine hits both; the ratio that counts is the median of the pairs' ratios.
void compare(const Comparison& c, Group& meet, int pairs, int turns, bool prints) {
  std::vector<double> ours, theirs, ratios;
  c.ours();
  c.theirs();
  for (int i = 0; i < pairs; ++i) {
    double a = 0, b = 0;
    for (int turn = 0; turn < turns; ++turn) {
      const bool first = turn % 2 == 0;
      if (first) a += seconds_of(meet, c.ours);
      b += seconds_of(meet, c.theirs);
      if (!first) a += seconds_of(meet, c.ours);
    }
    ours.push_back(a / turns / c.per_turn);
    theirs.push_back(b / turns / c.per_turn);
    ratios.push_back(a / b);
  }
  if (prints)
    std::printf("%-44s  ours %9.2f %s  theirs %9.2f %s  ratio %.3f  (%d pairs, %.3f..%.3f)\n", c.what,
                median(ours) * 1e6, c.unit, median(theirs) * 1e6, c.unit, median(ratios), pairs,
                *std::ranges::min_element(ratios), *std::ranges::max_element(ratios));
}

C10dPlace place_in(const StorePtr& store, const Environment& env, const char* name) {
  return {.store = c10::make_intrusive<c10d::PrefixStore>(name, store), .rank = env.rank, .size = env.world_size};
}

void run(const Environment& env, int pairs, int turns) {
  const StorePtr store = join_store(env, {});
  C10dWorld world(place_in(store, env, "bench"), {});
  Mesh mesh(Grid::dense({.dp = env.world_size}), world);
  // One backend carries all sides, so that they differ in our code alone.
  const auto bare = gloo_backend(c10::make_intrusive<c10d::PrefixStore>("bare", store), env.rank, env.world_size,
                                 gloo_device("127.0.0.1"), {});
  const Membership members{"bench", env.rank, mesh.world_group().world_ranks()};
  const std::shared_ptr<Lookout> lookout(&world.lookout(), [](Lookout*) {});
  const std::shared_ptr<Recorder> compared(&world.recorder(), [](Recorder*) {});
  GlooGroup fast(members, compared, {.check = CheckMode::fast}, bare, nullptr, lookout);
  GlooGroup off(members, std::make_shared<Recorder>(env.rank, env.world_size), {.check = CheckMode::off}, bare, nullptr,
                lookout);

  const auto bare_all_reduce = [&bare](const at::Tensor& x, int times) {
    for (int i = 0; i < times; ++i) {
      std::vector<at::Tensor> tensors{x};
      bare->allreduce(tensors)->wait();
    }
  };
  const auto our_all_reduce = [](Group& g, const at::Tensor& x, int times) {
    for (int i = 0; i < times; ++i) g.all_reduce_(x).wait();
  };
  const at::Tensor small = at::zeros({256}, at::kFloat), large = at::zeros({16 << 20}, at::kFloat);
  const auto fast_step = [&] {
    mesh.tag({1, "backward"});
    our_all_reduce(fast, small, 1000);
    world.end_step({&fast});
  };
  if (env.rank == 0) std::printf("%d ranks, Gloo, all_reduce sum of f32\n", env.world_size);
  const std::vector<Comparison> all{
      {"1 KiB: Group / bare c10d", "us", 500, [&] { our_all_reduce(fast, small, 500); },
       [&] { bare_all_reduce(small, 500); }},
      {"64 MiB: Group / bare c10d", "us", 2, [&] { our_all_reduce(fast, large, 2); },
       [&] { bare_all_reduce(large, 2); }},
      {"step of 1,000 x 1 KiB: check fast / off", "us", 1, fast_step, [&] { our_all_reduce(off, small, 1000); }},
  };
  for (const Comparison& c : all) {
    compare(c, mesh.world_group(), pairs, turns, env.rank == 0);
    world.recorder().start_step();
  }
}

}  // namespace

int main(int argc, char** argv) {
  RankMain how{.words = {argv, argv + argc}, .variables = process_variables(), .quiet = true};
  const int pairs = argc > 1 ? std::atoi(argv[1]) : 10;
  const int turns = argc > 2 ? std::atoi(argv[2]) : 2;  // of a side in a pair
  return rank_main(how, [&](const Environment& env) { run(env, pairs, turns); });
}
