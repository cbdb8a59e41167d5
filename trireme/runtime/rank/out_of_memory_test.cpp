#include "trireme/runtime/rank/out_of_memory.hpp"

#include <cstdlib>
#include <new>
#include <system_error>

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

namespace trireme {
namespace {

TEST(OutOfMemory, IsRecognized) {
  const auto found = [](const std::exception& e) {
    const auto refused = refused_memory(e);
    return refused ? amount_text(*refused) + " by " + refused->by : "";
  };
  EXPECT_EQ(found(std::bad_alloc()), "more memory by the C++ library");
  EXPECT_EQ(found(std::system_error(ENOMEM, std::generic_category())), "more memory by the system");
  EXPECT_EQ(found(std::system_error(EAGAIN, std::generic_category())), "");
  EXPECT_EQ(found(std::runtime_error("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has")),
            "2.50 GiB (2,684,354,560 bytes) by the CUDA allocator");
  EXPECT_EQ(found(std::runtime_error("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling")), "more memory by cuBLAS");
  EXPECT_EQ(found(std::runtime_error("the sizes do not match")), "");
}

/// `ulimit -v`: a thread that cannot be started has no memory for its stack.
TEST(OutOfMemoryDeathTest, AThreadWithoutMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        rlimit limit{};
        ::getrlimit(RLIMIT_AS, &limit);
        limit.rlim_cur = rlim_t{1} << 45;
        ::setrlimit(RLIMIT_AS, &limit);
        std::exit(refused_memory(std::system_error(EAGAIN, std::generic_category())).has_value() ? 5 : 6);
      },
      testing::ExitedWithCode(5), "");
}

/// The words of the libtorch that is used, not those that somebody remembers.
TEST(OutOfMemory, OfLibtorchItself) {
  std::string amount;
  try {
    static_cast<void>(at::empty({std::int64_t{1} << 50}, at::kByte));
  } catch (const std::exception& e) {
    const auto refused = refused_memory(e);
    amount = refused ? amount_text(*refused) : e.what();
  }
  EXPECT_EQ(amount, "1.00 PiB (1,125,899,906,842,624 bytes)");
}

TEST(OutOfMemoryDeathTest, ALibraryThatExitsIsReported) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const LibraryExit scope([] { return std::string("no memory for BLAS in step 3"); });
        std::exit(1);
      },
      testing::ExitedWithCode(73), "error: no memory for BLAS in step 3");
  EXPECT_EXIT(
      {
        const LibraryExit scope([] { return std::string("not this"); });
        std::exit(3);
      },
      testing::ExitedWithCode(3), "");
  EXPECT_EXIT(
      {
        {
          const LibraryExit scope([] { return std::string("not this"); });
        }
        std::exit(1);
      },
      testing::ExitedWithCode(1), "");
}

}  // namespace
}  // namespace trireme
