#include "trireme/base/temporary_name.hpp"

#include <fstream>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/temp_folder.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

/// Of a process that is gone.
pid_t dead_pid() {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(0);
  ::waitpid(pid, nullptr, 0);
  return pid;
}

std::string replaced(std::string words, const std::string& old, const std::string& by) {
  return words.replace(words.rfind(old), old.size(), by);
}

TEST(TemporaryName, LeftoversOfDeadProcessesAreRemoved) {
  TempFolder folder;
  const std::string own = text("-", ::getpid(), "-"), gone = text("-", dead_pid(), "-");
  const fs::path mine = temporary_name(folder / "step-4", 0), other = temporary_name(folder / "step-5", 0);
  const fs::path left = replaced(mine.string(), own, gone), left_file = replaced(other.string(), own, gone);
  const fs::path of_elsewhere = replaced(left.string(), ".tmp-", ".tmp-x"), not_ours = left.string() + "x";
  fs::create_directories(left / "inside");
  for (const fs::path& each : {mine, left_file, of_elsewhere, not_ours}) std::ofstream(each) << "half";

  remove_leftovers(folder / "step-4");
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(left_file)) << "of another path";
  remove_leftovers_in(folder.path());
  EXPECT_FALSE(fs::exists(left_file));
  for (const fs::path& each : {mine, of_elsewhere, not_ours}) EXPECT_TRUE(fs::exists(each)) << each;
  remove_leftovers_in(folder / "nothing here");
}

TEST(TemporaryName, OwnOnesAreKnown) {
  EXPECT_TRUE(is_own_temporary(temporary_name("a/b.ds", 3).filename().string()));
  EXPECT_FALSE(is_own_temporary("b.ds"));
  EXPECT_FALSE(is_own_temporary(replaced(temporary_name("b", 0).string(), text("-", ::getpid(), "-"), "-1-")));
}

}  // namespace
}  // namespace trireme
