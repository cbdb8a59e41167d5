#include "trireme/files/folder_lock.hpp"

#include <atomic>
#include <chrono>
#include <csignal>
#include <random>
#include <set>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/base/stopwatch.hpp"
#include "trireme/testing/files_helpers.hpp"

namespace trireme::files {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Of a process that plays another host, with frequent signs of life.
FolderLockOptions other_host() {
  return {.refresh_s = 0.05, .place = FolderLockOptions::Place{"far", "boot", "space"}};
}
FolderLockOptions soon() { return {.refresh_s = 0.05, .stale_after_s = 0.5}; }

/// Memory that forked processes share.
struct SharedCounters {
  std::atomic<int> ready{0}, go{0}, won{0}, lost{0}, wrong{0}, holders{0};
};
class Shared {
 public:
  Shared()
      : memory_(::mmap(nullptr, sizeof(SharedCounters), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
        counters_(new(memory_) SharedCounters) {}
  ~Shared() { ::munmap(memory_, sizeof(SharedCounters)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  SharedCounters* operator->() const { return counters_; }

 private:
  void* memory_;
  SharedCounters* counters_;
};

void wait_until(const std::function<bool()>& condition) {
  const Stopwatch watch;
  while (!condition() && watch.seconds() < 60) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

/// A process that runs `body` and ends; killed when this is destroyed.
class Child {
 public:
  explicit Child(const std::function<void()>& body) : pid_(::fork()) {
    if (pid_ != 0) return;
    try {
      body();
    } catch (const std::exception&) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  ~Child() { kill_and_wait(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void kill_and_wait() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    wait();
  }
  void wait() {
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_;
};

/// A process that holds the lock until it is killed.
std::unique_ptr<Child> holding_child(const std::filesystem::path& folder, const FolderLockOptions& options) {
  const Shared shared;
  auto child = std::make_unique<Child>([&] {
    const FolderLock lock(folder, options);
    shared->ready = 1;
    while (true) ::pause();
  });
  wait_until([&] { return shared->ready == 1; });
  return child;
}

std::set<std::string> lock_files(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

TEST(FolderLock, ExcludesOthersAndIsReleased) {
  const TempFolder folder;
  {
    const FolderLock lock(folder.path());
    EXPECT_TRUE(lock.still_ours());
    lock.check();
    EXPECT_THAT(message_of<ConfigError>([&] { const FolderLock second(folder.path()); }),
                AllOf(HasSubstr(folder.path().string()), HasSubstr("another run writes to this folder"),
                      HasSubstr(text("pid ", ::getpid(), " on host ")), HasSubstr("fix: stop that run")));
    EXPECT_EQ(lock_files(folder.path()), std::set<std::string>{".lock"});
  }
  EXPECT_TRUE(lock_files(folder.path()).empty());
  const FolderLock again(folder.path());
}

TEST(FolderLock, AFolderThatCannotBeLockedIsAnError) {
  const TempFolder folder;
  EXPECT_THAT(message_of<ConfigError>([&] { const FolderLock lock(folder / "nothing"); }), HasSubstr("cannot be made"));
  std::filesystem::create_symlink("/etc/passwd", folder / ".lock");
  EXPECT_THAT(message_of<ConfigError>([&] { const FolderLock lock(folder.path()); }), HasSubstr("cannot be read"));
}

TEST(FolderLock, OfAKilledProcessIsTakenOverAtOnce) {
  const TempFolder folder;
  const auto child = holding_child(folder.path(), {});
  EXPECT_THAT(message_of<ConfigError>([&] { const FolderLock lock(folder.path()); }),
              HasSubstr(text("pid ", child->pid(), " on host ")));
  child->kill_and_wait();
  const Stopwatch watch;
  const FolderLock lock(folder.path());
  EXPECT_LT(watch.seconds(), 10);  // far less than stale_after_s
  EXPECT_TRUE(lock.still_ours());
  EXPECT_EQ(lock_files(folder.path()), std::set<std::string>{".lock"});
}

TEST(FolderLock, AnotherProcessWithTheSamePidIsNotTheHolder) {
  const TempFolder folder;
  std::string contents;
  {
    const FolderLock lock(folder.path());
    contents = file_contents(lock.path());
  }
  const std::size_t start = contents.find("start=");
  contents.replace(start, contents.find('\n', start) - start, "start=1");
  write_file(folder / ".lock", contents);
  const FolderLock lock(folder.path());
}

TEST(FolderLock, OfAnotherHostCountsBySignsOfLife) {
  const TempFolder folder;
  const auto child = holding_child(folder.path(), other_host());
  EXPECT_THAT(message_of<ConfigError>([&] { const FolderLock lock(folder.path()); }),
              HasSubstr(text("pid ", child->pid(), " on host \"far\"")));
  child->kill_and_wait();
  const Stopwatch watch;
  const FolderLock lock(folder.path(), soon());
  EXPECT_GE(watch.seconds(), 0.5);
  EXPECT_TRUE(lock.still_ours());
}

TEST(FolderLock, ADamagedOneIsReplacedAfterAWhile) {
  const TempFolder folder;
  for (const char* contents : {"", "host=x\npid=1\nid=../../etc\n"}) {
    write_file(folder / ".lock", contents);
    const FolderLock lock(folder.path(), {.stale_after_s = 0.2});
    EXPECT_TRUE(lock.still_ours());
  }
}

/// Half a minute without a word looks like a hang.
TEST(FolderLock, SaysThatItWaitsAndForWhom) {
  const TempFolder folder;
  const std::string lock_path = (folder / ".lock").string();
  std::vector<std::string> said;
  FolderLockOptions options{.stale_after_s = 0.1};
  options.on_wait = [&](const std::string& what) {
    EXPECT_TRUE(std::filesystem::exists(lock_path)) << "before it waits";
    said.push_back(what);
  };
  write_file(lock_path, "");
  {
    const FolderLock lock(folder.path(), options);
  }
  write_file(lock_path, "host=far\nboot=b\nprocess_space=s\npid=7\nstart=1\nid=0123456789abcdef0123456789abcdef\n");
  {
    const FolderLock lock(folder.path(), options);
  }
  EXPECT_THAT(said,
              ElementsAre(lock_path + " is held by an unknown process: waiting up to 0.1 s for a sign of life",
                          lock_path + " is held by pid 7 on host \"far\": waiting up to 0.1 s for a sign of life"));
  const FolderLock free(folder.path(), options);
  EXPECT_EQ(said.size(), 2u) << "nobody holds it: nothing to wait for";
}

TEST(FolderLock, OnlyItsOwnIsReleased) {
  const TempFolder folder;
  {
    const FolderLock lock(folder.path(), soon());
    std::filesystem::remove(lock.path());
    EXPECT_THAT(message_of<ConfigError>([&] { lock.check(); }), HasSubstr("it was removed"));
    write_file(lock.path(), "host=far\nboot=b\nprocess_space=s\npid=7\nstart=1\nid=0123456789abcdef0123456789abcdef\n");
    EXPECT_FALSE(lock.still_ours());
    EXPECT_THAT(message_of<ConfigError>([&] { lock.check(); }), HasSubstr("pid 7 on host \"far\" has taken it"));
  }
  EXPECT_THAT(file_contents(folder / ".lock"), HasSubstr("host=far"));
}

TEST(FolderLock, AForkedChildDoesNotRelease) {
  const TempFolder folder;
  auto lock = std::make_unique<FolderLock>(folder.path(), soon());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // its thread waits
  Child([&] { lock.reset(); }).wait();
  EXPECT_TRUE(lock->still_ours());
}

/// `count` processes try at once, and the winners hold the lock until all have tried.
void contend(const std::filesystem::path& folder, int count, const FolderLockOptions& options) {
  const Shared shared;
  std::vector<std::unique_ptr<Child>> children;
  for (int i = 0; i < count; ++i)
    children.push_back(std::make_unique<Child>([&] {
      ++shared->ready;
      wait_until([&] { return shared->go == 1; });
      try {
        const FolderLock lock(folder, options);
        ++shared->won;
        wait_until([&] { return shared->won + shared->lost == count; });
      } catch (const ConfigError&) {
        ++shared->lost;
      }
    }));
  wait_until([&] { return shared->ready == count; });
  shared->go = 1;
  for (const auto& child : children) child->wait();
  ASSERT_EQ(shared->won, 1);
  ASSERT_EQ(shared->lost, count - 1);
}

TEST(FolderLock, OneOfEightContendersGetsIt) {
  const TempFolder folder(memory_folder());
  for (int round = 0; round < 20; ++round) {
    ASSERT_NO_FATAL_FAILURE(contend(folder.path(), 8, {}));
    ASSERT_TRUE(lock_files(folder.path()).empty());
  }
}

TEST(FolderLock, OneOfEightTakesOverAStaleOne) {
  const TempFolder folder(memory_folder());
  for (int round = 0; round < 20; ++round) {
    holding_child(folder.path(), {})->kill_and_wait();
    ASSERT_TRUE(std::filesystem::exists(folder / ".lock"));
    ASSERT_NO_FATAL_FAILURE(contend(folder.path(), 8, {}));
    ASSERT_TRUE(lock_files(folder.path()).empty());
  }
}

TEST(FolderLock, ATakeoverThatWasInterruptedIsTakenOver) {
  const TempFolder folder(memory_folder());
  holding_child(folder.path(), {})->kill_and_wait();
  const std::string stale = file_contents(folder / ".lock");
  const std::string id = stale.substr(stale.find("\nid=") + 4, 32);
  std::string taker = stale;
  taker.replace(taker.find(id), 32, std::string(32, 'a'));
  write_file(folder / (".lock-change-" + id), taker);  // of a dead process
  write_file(folder / (".lock-change-" + std::string(32, 'a')), taker.replace(taker.find("aaaa"), 4, "bbbb"));
  write_file(folder / (".lock-new-" + std::string(32, 'c')), "half");
  const FolderLock lock(folder.path());
  EXPECT_TRUE(lock.still_ours());
  EXPECT_EQ(lock_files(folder.path()), std::set<std::string>{".lock"});
}

TEST(FolderLock, NeverHasTwoHoldersWhileProcessesDie) {
  const TempFolder folder(memory_folder());
  const Shared shared;
  const auto worker = [&](unsigned seed) {
    return std::make_unique<Child>([&, seed] {
      std::minstd_rand random(seed);
      while (shared->won < 400) {
        try {
          const FolderLock lock(folder.path());
          if (++shared->holders != 1) ++shared->wrong;
          ++shared->won;
          std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
          --shared->holders;
          if (random() % 8 == 0) ::kill(::getpid(), SIGKILL);
        } catch (const ConfigError&) {
        }
      }
    });
  };
  std::vector<std::unique_ptr<Child>> children(4);
  unsigned seed = 1;
  const Stopwatch watch;
  while (shared->won < 400 && watch.seconds() < 60) {
    for (auto& child : children)
      if (!child || ::waitpid(child->pid(), nullptr, WNOHANG) == child->pid()) child = worker(seed++);
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  // Not killed: one that dies while it counts as a holder would be a second one for whoever takes over.
  for (auto& child : children) child->wait();
  EXPECT_GE(shared->won, 400);
  EXPECT_EQ(shared->wrong, 0);
  EXPECT_GT(seed, 20u);  // processes did die
}

}  // namespace
}  // namespace trireme::files
