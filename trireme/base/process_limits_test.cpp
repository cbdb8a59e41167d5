#include "trireme/base/process_limits.hpp"

#include <cerrno>
#include <fstream>
#include <new>
#include <system_error>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "trireme/testing/file_size_limit.hpp"
#include "trireme/testing/temp_folder.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// In a process of its own: hard limits cannot be raised again. Prints what `action` throws, and exits with 1.
template <class Action>
[[noreturn]] void with_limit(int resource, rlim_t soft, rlim_t hard, const Action& action) {
  const rlimit limit{soft, hard};
  ::setrlimit(static_cast<__rlimit_resource>(resource), &limit);
  try {
    action();
  } catch (const Error& e) {
    const std::string what = e.what();
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, what.data(), what.size());
    ::_exit(1);
  }
  ::_exit(0);
}

TEST(ProcessLimits, DescriptorsAreRaisedUpToTheHardLimit) {
  EXPECT_EXIT(with_limit(RLIMIT_NOFILE, 32, 200,
                         [] {
                           need_descriptors(150, "rank 0 of 2");
                           rlimit now{};
                           ::getrlimit(RLIMIT_NOFILE, &now);
                           if (now.rlim_cur < 150) ::_exit(2);
                         }),
              testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      with_limit(RLIMIT_NOFILE, 32, 48, [] { need_descriptors(descriptors_of_rank(2), "rank 0 of 2"); }),
      testing::ExitedWithCode(1),
      "rank 0 of 2 needs about 67 descriptors; ulimit -n allows 32, and its hard limit is 48\n  fix: ulimit -n");
}

TEST(ProcessLimits, ThreadsThatCannotBeStartedNameTheLimit) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "built with a sanitizer, which needs terabytes of addresses: no ulimit -v can be set";
#endif
  // The address space, since the number of processes counts those of other tests, and root is free of it.
  EXPECT_EXIT(with_limit(RLIMIT_AS, rlim_t{1} << 30, rlim_t{1} << 30, [] { ThreadReserve(4000, "rank 1 of 2"); }),
              testing::ExitedWithCode(1),
              "rank 1 of 2 needs 4000 more threads and could start [0-9]+: Resource temporarily unavailable\n"
              "  limits: ulimit -u .*ulimit -v 1,048,576\n  fix: ");
  const ThreadReserve few(3, "this test");
}

TEST(ProcessLimits, PidsOfTheControlGroup) {
  TempFolder folder;
  std::filesystem::create_directories(folder / "pids/job");
  std::ofstream(folder / "self") << "8:pids:/job\n";
  std::ofstream(folder / "pids/job/pids.max") << "40\n";
  std::ofstream(folder / "pids/job/pids.current") << "38\n";
  const CgroupPlaces places{.root = folder.path(), .self = folder / "self"};
  ASSERT_TRUE(cgroup_pid_limit(places));
  EXPECT_EQ(cgroup_pid_limit(places)->max, 40);
  EXPECT_EQ(cgroup_pid_limit(places)->current, 38);
  std::ofstream(folder / "pids/job/pids.max") << "max\n";
  EXPECT_FALSE(cgroup_pid_limit(places));
}

TEST(ProcessLimits, ThreadCounts) {
  EXPECT_NO_THROW(check_thread_count(64, "OMP_NUM_THREADS"));
  EXPECT_THAT(message_of<ConfigError>([] { check_thread_count(500'000, "OMP_NUM_THREADS"); }),
              AllOf(HasSubstr("OMP_NUM_THREADS = 500000: must be at most "), HasSubstr("fix: OMP_NUM_THREADS=")));
}

TEST(ProcessLimits, FilesThatAreTooLarge) {
  EXPECT_EQ(write_error_text(ENOSPC), "No space left on device");
  EXPECT_THAT(write_error_fix(ENOSPC), HasSubstr("make room"));
  const FileSizeLimit limit(65'536);
  EXPECT_EQ(write_error_text(EFBIG), "File too large, ulimit -f allows 64.0 KiB");
  EXPECT_EQ(write_error_fix(EFBIG), "ulimit -f unlimited");
}

TEST(ProcessLimits, ExceptionsOfTheStandardLibrary) {
  EXPECT_EQ(limit_behind(std::bad_alloc())->code, ExitCode::out_of_memory);
  const std::system_error thread(std::make_error_code(std::errc::resource_unavailable_try_again));
  EXPECT_THAT(limit_behind(thread)->what, AllOf(HasSubstr("a thread could not be started"), HasSubstr("ulimit -u")));
  const std::system_error file(std::make_error_code(std::errc::too_many_files_open));
  EXPECT_THAT(limit_behind(file)->what, HasSubstr("ulimit -n"));
  EXPECT_FALSE(limit_behind(std::runtime_error("else")));
}

}  // namespace
}  // namespace trireme
