#include "trireme/files/fs.hpp"

#include <cerrno>
#include <cstdlib>
#include <memory>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trireme/testing/file_size_limit.hpp"
#include "trireme/testing/files_helpers.hpp"
#include "trireme/testing/recording_fs.hpp"

namespace trireme::files {
namespace {

std::span<const std::byte> bytes_of_text(const std::string& words) { return std::as_bytes(std::span(words)); }

unsigned mode_of(const std::filesystem::path& path) {
  struct stat facts{};
  return ::lstat(path.c_str(), &facts) == 0 ? facts.st_mode & 07777U : 0;
}

TEST(RealFs, WritesAFileAndNeverReplacesOne) {
  const TempFolder folder;
  const mode_t mask = ::umask(0);
  Fs& fs = real_fs();
  int fd = -1, other = -1;
  EXPECT_EQ(fs.make_folder(folder / "a"), 0);
  EXPECT_EQ(fs.make_folder(folder / "a"), EEXIST);
  ASSERT_EQ(fs.create(folder / "a/x", false, fd), 0);
  ::umask(mask);
  EXPECT_EQ(fs.create(folder / "a/x", false, other), EEXIST);
  EXPECT_EQ(fs.write(fd, 3, bytes_of_text("defg")), 0);
  EXPECT_EQ(fs.write(fd, 0, bytes_of_text("abc")), 0);
  EXPECT_EQ(fs.truncate(fd, 6), 0);
  EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(fs.sync(fd), 0);
  EXPECT_EQ(fs.close(fd), 0);
  EXPECT_EQ(fs.close(fd), EBADF);
  EXPECT_EQ(file_contents(folder / "a/x"), "abcdef");
  EXPECT_EQ(mode_of(folder / "a/x"), 0644U);
  EXPECT_EQ(mode_of(folder / "a"), 0755U);

  EXPECT_EQ(fs.remove_folder(folder / "a"), ENOTEMPTY);
  EXPECT_EQ(fs.rename(folder / "a/x", folder / "a/y"), 0);
  EXPECT_EQ(fs.sync_folder(folder / "a"), 0);
  EXPECT_EQ(fs.sync_folder(folder / "b"), ENOENT);
  EXPECT_EQ(fs.remove_file(folder / "a/x"), ENOENT);
  EXPECT_EQ(fs.remove_file(folder / "a/y"), 0);
  EXPECT_EQ(fs.remove_folder(folder / "a"), 0);
}

TEST(RealFs, LinksAreNotFollowed) {
  const TempFolder folder;
  write_file(folder / "target", "stays");
  std::filesystem::create_symlink(folder / "target", folder / "link");
  std::filesystem::create_symlink(folder / "nowhere", folder / "dangling");
  int fd = -1;
  EXPECT_EQ(real_fs().create(folder / "link", false, fd), EEXIST);
  EXPECT_EQ(real_fs().create(folder / "dangling", true, fd), EEXIST);
  EXPECT_FALSE(std::filesystem::exists(folder / "nowhere"));
  EXPECT_EQ(real_fs().remove_file(folder / "link"), 0);
  EXPECT_EQ(file_contents(folder / "target"), "stays");
}

TEST(RealFs, DirectWritesFallBackToTheCache) {
  // tmpfs has no direct writes (before Linux 6.6: refused when it is opened); on others an unaligned tail is refused.
  for (const std::filesystem::path& place :
       {std::filesystem::path("/dev/shm"), std::filesystem::temp_directory_path()}) {
    const std::filesystem::path file = place / text("trireme-fs-test-", ::getpid());
    int fd = -1;
    if (const int error = real_fs().create(file, true, fd); error == EACCES || error == ENOENT) continue;
    const std::size_t size = 2 * Fs::kDirectAlign;
    const std::unique_ptr<std::byte, decltype(&std::free)> memory(
        static_cast<std::byte*>(std::aligned_alloc(Fs::kDirectAlign, size)), &std::free);
    std::fill_n(memory.get(), size, std::byte{'x'});
    EXPECT_EQ(real_fs().write(fd, 0, {memory.get(), size}), 0);
    EXPECT_EQ(real_fs().write(fd, size, {memory.get() + 1, 100}), 0);
    EXPECT_EQ(real_fs().sync(fd), 0);
    EXPECT_EQ(real_fs().close(fd), 0);
    EXPECT_EQ(file_contents(file), std::string(size + 100, 'x'));
    EXPECT_EQ(real_fs().remove_file(file), 0);
  }
}

TEST(RealFs, AFullDiskIsAnError) {
  const TempFolder folder;
  int fd = -1;
  ASSERT_EQ(real_fs().create(folder / "a", false, fd), 0);
  {
    const FileSizeLimit limit(1000);
    EXPECT_EQ(real_fs().write(fd, 0, bytes_of_text(std::string(3000, 'a'))), EFBIG);  // after a short write
  }
  real_fs().close(fd);
  EXPECT_EQ(std::filesystem::file_size(folder / "a"), 1000u);
}

TEST(RecordingFs, LogsWhatSucceeded) {
  const TempFolder folder;
  RecordingFs fs;
  int fd = -1;
  fs.make_folder(folder / "a");
  fs.make_folder(folder / "a");  // EEXIST
  fs.create(folder / "a/x", false, fd);
  fs.write(fd, 0, bytes_of_text("hello"));
  fs.sync(fd);
  fs.close(fd);
  fs.rename(folder / "a", folder / "b");
  std::vector<FsKind> kinds;
  for (const FsOp& op : fs.log) kinds.push_back(op.kind);
  EXPECT_THAT(kinds, ::testing::ElementsAre(FsKind::make_folder, FsKind::create, FsKind::write, FsKind::sync,
                                            FsKind::close, FsKind::rename));
  EXPECT_EQ(fs.log[2].path, folder / "a/x");
  EXPECT_EQ(fs.log[2].data, "hello");
  EXPECT_EQ(file_contents(folder / "b/x"), "hello");
}

TEST(FailingFs, FailsOnceAndWritesAPart) {
  const TempFolder folder;
  FailingFs fs({.number = 1, .error = ENOSPC, .kind = FsKind::write, .partial = true});
  int fd = -1;
  EXPECT_EQ(fs.create(folder / "x", false, fd), 0);
  EXPECT_EQ(fs.write(fd, 0, bytes_of_text("abcd")), 0);
  EXPECT_FALSE(fs.has_failed());
  EXPECT_EQ(fs.write(fd, 4, bytes_of_text("efgh")), ENOSPC);
  EXPECT_EQ(fs.failed().path, folder / "x");
  EXPECT_EQ(fs.close(fd), 0);
  EXPECT_EQ(file_contents(folder / "x"), "abcdef");
  FailingFs any({.number = 0, .error = EIO});
  EXPECT_EQ(any.sync_folder(folder.path()), EIO);
  EXPECT_EQ(any.sync_folder(folder.path()), 0);
}

}  // namespace
}  // namespace trireme::files
