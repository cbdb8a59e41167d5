#include "trireme/base/process_start.hpp"

#include <array>
#include <cerrno>
#include <csignal>

#include <gtest/gtest.h>
#include <unistd.h>

namespace trireme {
namespace {

/// Puts the handler of SIGPIPE back at its end.
class IgnoreBrokenPipes : public testing::Test {
 protected:
  IgnoreBrokenPipes() { ::sigaction(SIGPIPE, nullptr, &before_); }
  ~IgnoreBrokenPipes() override { ::sigaction(SIGPIPE, &before_, nullptr); }

  /// The error of a write to a pipe that nobody reads.
  static int error_of_write() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    ::close(ends[0]);
    errno = 0;
    EXPECT_EQ(::write(ends[1], "x", 1), -1);
    const int error = errno;
    ::close(ends[1]);
    return error;
  }

 private:
  struct sigaction before_{};
};

volatile std::sig_atomic_t broken_pipes_noted = 0;

TEST_F(IgnoreBrokenPipes, WritesFailInstead) {
  std::signal(SIGPIPE, SIG_DFL);
  ignore_broken_pipes();
  EXPECT_EQ(error_of_write(), EPIPE);
}

TEST_F(IgnoreBrokenPipes, LeavesAHandlerOfTheProgram) {
  std::signal(SIGPIPE, [](int) { broken_pipes_noted = 1; });
  ignore_broken_pipes();
  EXPECT_EQ(error_of_write(), EPIPE);
  EXPECT_EQ(broken_pipes_noted, 1);
}

}  // namespace
}  // namespace trireme
