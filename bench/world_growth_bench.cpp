// How the group of the step check and a check grow with the ranks, which are threads of this process over Gloo: with a
// full mesh of connections, and with connections between the pairs that talk (Note [Connections] in
// comm/backends/gloo_group.cpp).
//   trireme_world_growth_bench [RANKS...]      default: 16 32 64 128 256 512
// A full mesh holds ranks^2 descriptors per group here, where both ends of a connection are in one process: it is left
// out where they are too many.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <vector>

#include <sys/resource.h>

#include "trireme/testing/counting_store.hpp"
#include "trireme/testing/gloo_threads.hpp"

namespace {

using namespace trireme;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::int64_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

struct Growth {
  double start_s = 0, check_ms = 0, keys = 0, descriptors = 0;
};

Growth measure(int ranks, int full_mesh_ranks) {
  constexpr int kSteps = 11;
  Growth growth;
  std::vector<double> checks;
  const auto store = c10::make_intrusive<CountingStore>();
  const auto begin = Clock::now();
  run_gloo_threads(
      ranks,
      [&](World& world) {
        world.end_step({});
        if (world.rank() == 0) {
          growth.start_s = seconds_since(begin);
          growth.descriptors = static_cast<double>(open_descriptors()) / ranks;
          growth.keys = static_cast<double>(store->keys_read()) / ranks;
        }
        for (int step = 0; step < kSteps; ++step) {
          world.control().barrier().wait();
          const auto start = Clock::now();
          world.end_step({});
          if (world.rank() == 0) checks.push_back(1000 * seconds_since(start));
        }
      },
      {.timeout_s = 300, .full_mesh_ranks = full_mesh_ranks}, store);
  std::ranges::sort(checks);
  growth.check_ms = checks[checks.size() / 2];
  return growth;
}

void print(int ranks, const char* how, const Growth& g) {
  std::printf("%5d  %-9s  %9.2f  %17.0f  %20.0f  %15.2f\n", ranks, how, g.start_s, g.keys, g.descriptors, g.check_ms);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<int> worlds;
  for (int i = 1; i < argc; ++i) worlds.push_back(std::atoi(argv[i]));
  if (worlds.empty()) worlds = {16, 32, 64, 128, 256, 512};
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  std::printf("ranks  connected  start (s)  keys read by one  descriptors of one  step check (ms)\n");
  for (const int ranks : worlds) {
    const auto needed = 1.2 * ranks * ranks;
    if (needed < static_cast<double>(files.rlim_cur))
      print(ranks, "all", measure(ranks, ranks));
    else
      std::printf("%5d  %-9s  left out: about %.0f descriptors, the limit is %llu\n", ranks, "all", needed,
                  static_cast<unsigned long long>(files.rlim_cur));
    print(ranks, "in pairs", measure(ranks, 8));
  }
}
