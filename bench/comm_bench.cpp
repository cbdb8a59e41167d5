// Compares our Group with the underlying c10d backend, the fast check with none, and shared memory with Gloo, in the
// same processes.
//   trireme launch -n N -- trireme_comm_bench [PAIRS [TURNS [WHAT]]]      WHAT: part of a comparison's name
// Each side has its own Gloo group of the same processes; the turns are interleaved and medians compared.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "trireme/base/cgroup_facts.hpp"
#include "trireme/comm/backends/c10d_world.hpp"
#include "trireme/comm/mesh.hpp"
#include "trireme/runtime/environment/rendezvous.hpp"
#include "trireme/runtime/rank/rank_main.hpp"

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
  int calls;   // per turn
  int pieces;  // a turn is split into short pieces, so that drift on a shared machine affects both sides
  std::function<void()> ours, theirs;
};

/// A pair is some turns of ours and of theirs, alternating, also in which goes first; the result is the median of the
/// pairs' ratios.
void compare(const Comparison& c, Group& meet, int pairs, int turns, bool prints) {
  std::vector<double> ours, theirs, ratios;
  c.ours();
  c.theirs();
  for (int i = 0; i < pairs; ++i) {
    double a = 0, b = 0;
    for (int piece = 0; piece < turns * c.pieces; ++piece) {
      const bool first = piece % 2 == 0;
      if (first) a += seconds_of(meet, c.ours);
      b += seconds_of(meet, c.theirs);
      if (!first) a += seconds_of(meet, c.ours);
    }
    ours.push_back(a / turns / c.calls);
    theirs.push_back(b / turns / c.calls);
    ratios.push_back(a / b);
  }
  if (prints)
    std::printf("%-44s  ours %9.2f us  theirs %9.2f us  a call  ratio %.3f  (%d pairs, %.3f..%.3f)\n", c.what,
                median(ours) * 1e6, median(theirs) * 1e6, median(ratios), pairs, *std::ranges::min_element(ratios),
                *std::ranges::max_element(ratios));
}

C10dPlace place_in(const StorePtr& store, const Environment& env, const char* name) {
  return {.store = c10::make_intrusive<c10d::PrefixStore>(name, store), .rank = env.rank, .size = env.world_size};
}

void run(const Environment& env, int pairs, int turns, const std::string& what) {
  const StorePtr store = join_store(env, {});
  C10dWorld world(place_in(store, env, "bench"), {});
  Mesh mesh(Grid::dense({.dp = env.world_size}), world);
  // All sides share one backend, so that they differ only in our code.
  const auto bare = gloo_backend(c10::make_intrusive<c10d::PrefixStore>("bare", store), env.rank, env.world_size,
                                 gloo_device("127.0.0.1"), {});
  const Membership members{"bench", env.rank, mesh.world_group().world_ranks()};
  const std::shared_ptr<Watchdog> watchdog(&world.watchdog(), [](Watchdog*) {});
  const std::shared_ptr<FlightRecorder> compared(&world.recorder(), [](FlightRecorder*) {});
  GlooGroup fast(members, compared, {.check = CheckMode::fast}, bare, nullptr, watchdog);
  GlooGroup off(members, std::make_shared<FlightRecorder>(env.rank, env.world_size), {.check = CheckMode::off}, bare,
                nullptr, watchdog);

  C10dPlace on_one_host = place_in(store, env, "shared memory");
  on_one_host.shares_memory = true;
  on_one_host.spins = env.world_size <= usable_cores();
  C10dWorld memory_world(on_one_host, {});
  const auto memory = memory_world.make_group("bench", mesh.world_group().world_ranks());

  const auto bare_all_reduce = [&bare](const at::Tensor& x, int times) {
    for (int i = 0; i < times; ++i) {
      std::vector<at::Tensor> tensors{x};
      bare->allreduce(tensors)->wait();
    }
  };
  const auto our_all_reduce = [](Group& g, const at::Tensor& x, int times) {
    for (int i = 0; i < times; ++i) g.all_reduce_(x).wait();
  };
  const at::Tensor small = at::zeros({256}, at::kFloat), medium = at::zeros({256 << 10}, at::kFloat),
                   large = at::zeros({16 << 20}, at::kFloat);
  constexpr int calls_a_step = 1000, calls_a_piece = 50;
  const auto piece_of_a_fast_step = [&, calls = 0]() mutable {
    if (calls == 0) mesh.tag({1, "backward"});
    our_all_reduce(fast, small, calls_a_piece);
    calls = (calls + calls_a_piece) % calls_a_step;
    if (calls == 0) world.end_step({&fast});
  };
  if (env.rank == 0) std::printf("%d ranks, Gloo, all_reduce sum of f32\n", env.world_size);
  const std::vector<Comparison> all{
      {"1 KiB: Group / bare c10d", 500, 500 / calls_a_piece, [&] { our_all_reduce(fast, small, calls_a_piece); },
       [&] { bare_all_reduce(small, calls_a_piece); }},
      {"64 MiB: Group / bare c10d", 2, 1, [&] { our_all_reduce(fast, large, 2); }, [&] { bare_all_reduce(large, 2); }},
      {"1 KiB, 1,000 calls a step: check fast / off", calls_a_step, calls_a_step / calls_a_piece, piece_of_a_fast_step,
       [&] { our_all_reduce(off, small, calls_a_piece); }},
      {"1 KiB: shared memory / Gloo", 500, 500 / calls_a_piece, [&] { our_all_reduce(*memory, small, calls_a_piece); },
       [&] { our_all_reduce(fast, small, calls_a_piece); }},
      {"1 MiB: shared memory / Gloo", 100, 10, [&] { our_all_reduce(*memory, medium, 10); },
       [&] { our_all_reduce(fast, medium, 10); }},
      {"64 MiB: shared memory / Gloo", 2, 1, [&] { our_all_reduce(*memory, large, 2); },
       [&] { our_all_reduce(fast, large, 2); }},
  };
  for (const Comparison& c : all) {
    if (std::string_view(c.what).find(what) == std::string_view::npos) continue;
    compare(c, mesh.world_group(), pairs, turns, env.rank == 0);
    world.recorder().start_step();
    memory_world.recorder().start_step();
  }
}

}  // namespace

int main(int argc, char** argv) {
  RankMain how{.words = {argv, argv + argc}, .variables = process_variables(), .quiet = true};
  const int pairs = argc > 1 ? std::atoi(argv[1]) : 10;
  const int turns = argc > 2 ? std::atoi(argv[2]) : 2;  // per side in a pair
  const std::string what = argc > 3 ? argv[3] : "";
  return rank_main(how, [&](const Environment& env) { run(env, pairs, turns, what); });
}
