#include "trireme/runtime/process_setup.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

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
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  Environment env;
  env.local_world_size = 1;
  EXPECT_EQ(threads_of_rank(env, {}), cores);
  env.local_world_size = 1000;
  EXPECT_EQ(threads_of_rank(env, {}), 1);
  EXPECT_EQ(threads_of_rank(env, {{"OMP_NUM_THREADS", "2"}}), 0);
}

}  // namespace
}  // namespace trireme
