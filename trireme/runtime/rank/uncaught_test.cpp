#include "trireme/runtime/rank/uncaught.hpp"

#include <exception>
#include <stdexcept>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/runtime/rank/init.hpp"

namespace trireme {
namespace {

/// Ends the process as the uncaught exception of a program that has called init(). gtest would catch it.
template <class Failure>
void fail_after_init(const Failure& failure, bool in_another_thread = false) {
  std::string program = "program";
  char* argv[] = {program.data(), nullptr};
  int argc = 1;
  const auto run = init(argc, argv);
  const auto fail = [&]() noexcept { std::rethrow_exception(std::make_exception_ptr(failure)); };
  if (in_another_thread)
    std::thread(fail).join();
  else
    fail();
}

TEST(UncaughtDeathTest, KeepsTheExitCodeAndEveryLine) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(fail_after_init(ConfigError("lr = -1: must be positive\n  fix: lr = 1e-3")), testing::ExitedWithCode(64),
              "error: lr = -1: must be positive\n  fix: lr = 1e-3");
  EXPECT_EXIT(fail_after_init(DataError("no samples"), /*in_another_thread=*/true), testing::ExitedWithCode(65),
              "error: no samples");
}

TEST(UncaughtDeathTest, OfOtherTypes) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(fail_after_init(std::runtime_error("first\nsecond")), testing::ExitedWithCode(70),
              "error: first\nsecond");
  EXPECT_EXIT(fail_after_init(5), testing::ExitedWithCode(70), "error: an exception of an unknown type");
}

}  // namespace
}  // namespace trireme
