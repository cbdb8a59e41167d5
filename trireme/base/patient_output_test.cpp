#include "trireme/base/patient_output.hpp"

#include <array>
#include <chrono>
#include <csignal>
#include <ostream>
#include <string>
#include <utility>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

namespace trireme {
namespace {

struct Pipe {
  std::array<int, 2> ends{};
  Pipe() { EXPECT_EQ(::pipe(ends.data()), 0); }
  ~Pipe() {
    for (const int fd : ends) ::close(fd);
  }
  /// What is there, at most `size` bytes.
  std::string read(std::size_t size) const {
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    std::string out(size, '\0');
    std::size_t done = 0;
    for (ssize_t got = 1; got > 0 && done < size; done += got > 0 ? static_cast<std::size_t>(got) : 0)
      got = ::read(ends[0], out.data() + done, size - done);
    out.resize(done);
    return out;
  }
};

TEST(PatientBuffer, WritesEverythingToAReader) {
  Pipe pipe;
  PatientBuffer buffer(pipe.ends[1]);
  std::ostream out(&buffer);
  out << "one " << 2 << std::endl;
  EXPECT_EQ(pipe.read(6), "one 2\n");
  out << 'x' << std::flush;
  EXPECT_EQ(pipe.read(1), "x");
}

TEST(PatientBuffer, GoesOnWithoutAReaderAndSaysWhatIsMissing) {
  Pipe pipe;
  PatientBuffer buffer(pipe.ends[1], std::chrono::milliseconds(1000));
  std::ostream out(&buffer);
  const std::string line(999, 'a');
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 2000; ++i) out << line << "\n" << std::flush;  // 2 MB: a pipe takes 64 kB
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(took, std::chrono::milliseconds(1000));
  EXPECT_LT(took, std::chrono::seconds(30)) << "it waits once, not for each line";
  EXPECT_TRUE(out.good());
  const std::string before = pipe.read(32'000);
  EXPECT_EQ(before.substr(0, 1000), line + "\n");
  out << "again" << std::endl;
  out << "and more" << std::endl;
  EXPECT_THAT(pipe.read(1'000'000),
              testing::AllOf(testing::HasSubstr("of output are missing here"), testing::EndsWith("again\nand more\n")));
}

/// A terminal says that it takes bytes, and blocks in the middle of a line: it needs a description that does not.
TEST(PatientBuffer, GoesOnWhenATerminalStops) {
  int master = -1, terminal = -1;
  ASSERT_EQ(::openpty(&master, &terminal, nullptr, nullptr, nullptr), 0);
  {
    PatientBuffer buffer(terminal, std::chrono::milliseconds(300));
    std::ostream out(&buffer);
    for (int i = 0; i < 400; ++i) out << std::string(332, 'a') << "\n" << std::flush;
    EXPECT_TRUE(out.good());
    EXPECT_EQ(::fcntl(terminal, F_GETFL) & O_NONBLOCK, 0) << "of others";
  }
  ::close(terminal);
  ::close(master);
}

TEST(PatientBuffer, AReaderThatIsGoneIsAnError) {
  Pipe pipe;
  ::signal(SIGPIPE, SIG_IGN);
  ::close(std::exchange(pipe.ends[0], ::dup(2)));
  PatientBuffer buffer(pipe.ends[1]);
  std::ostream out(&buffer);
  out << "x" << std::flush;
  EXPECT_FALSE(out.good());
  ::signal(SIGPIPE, SIG_DFL);
}

}  // namespace
}  // namespace trireme
