#include "trireme/runtime/process_setup.hpp"

#include <fstream>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <sched.h>

#include "trireme/testing/temp_folder.hpp"

namespace trireme {
namespace {

TEST(ProcessSetup, HoldsWhileItLives) {
  const int threads = at::get_num_threads();
  const bool onednn = at::globalContext().userEnabledMkldnn();
  {
    const ProcessSetup setup({.threads = 3, .blas_only = true});
    EXPECT_EQ(at::get_num_threads(), 3);
    EXPECT_FALSE(at::globalContext().userEnabledMkldnn());
    ASSERT_NE(setup.cpu_memory(), nullptr);
    const at::Tensor counted = at::zeros({1000}, at::kFloat);
    EXPECT_GE(setup.cpu_memory()->alive(), 4000);
  }
  EXPECT_EQ(at::get_num_threads(), threads);
  EXPECT_EQ(at::globalContext().userEnabledMkldnn(), onednn);
  const ProcessSetup nothing({.cpu_memory = false});
  EXPECT_EQ(nothing.cpu_memory(), nullptr);
  EXPECT_EQ(at::get_num_threads(), threads);
}

TEST(ProcessSetup, RanksOfAHostShareItsCores) {
  const int cores = usable_cores();
  Environment env;
  env.local_world_size = 1;
  EXPECT_EQ(threads_of_rank(env, {}), cores);
  env.local_world_size = 1000;
  EXPECT_EQ(threads_of_rank(env, {}), 1);
  EXPECT_EQ(threads_of_rank(env, {{"OMP_NUM_THREADS", "2"}}), 0);
}

TEST(ProcessSetup, TheLimitOfTheControlGroupCounts) {
  TempFolder folder;
  std::ofstream(folder / "self") << "0::/\n";
  std::ofstream(folder / "cpu.max") << "100000 100000\n";  // one core
  Environment env;
  env.local_world_size = 1;
  EXPECT_EQ(threads_of_rank(env, {}, {.root = folder.path(), .self = folder / "self"}), 1);
}

TEST(ProcessSetup, BoundRanksUseTheirOwnCores) {
  cpu_set_t before, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);  // as mpirun does
  Environment env;
  env.local_world_size = 1;
  const int threads = threads_of_rank(env, {});
  ::sched_setaffinity(0, sizeof before, &before);
  EXPECT_EQ(threads, 1);
}

}  // namespace
}  // namespace trireme
