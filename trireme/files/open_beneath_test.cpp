#include "trireme/files/open_beneath.hpp"

#include <cerrno>
#include <filesystem>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trireme/files/mapped_file.hpp"
#include "trireme/testing/files_helpers.hpp"

namespace trireme::files {
namespace {

namespace fs = std::filesystem;

const std::string kHash(64, 'a');

TEST(OpenBeneath, BaseNames) {
  for (const char* good : {"a", "model-00001-of-00002.safetensors", "a..b", "...", ".hidden", "ü", "a b", "\\"})
    EXPECT_TRUE(is_base_name(good)) << good;
  for (const char* bad : {"", ".", "..", "/", "/a", "a/b", "../a", "a/", "a\n"}) EXPECT_FALSE(is_base_name(bad)) << bad;
  EXPECT_FALSE(is_base_name(std::string_view("a\0b", 3)));
  EXPECT_TRUE(is_base_name(std::string(255, 'a')));
  EXPECT_FALSE(is_base_name(std::string(4096, 'a')));
}

/// A snapshot of a Hugging Face cache, with a secret file outside it.
class Links : public ::testing::TestWithParam<bool> {
 protected:
  Links() {
    fs::create_directories(folder_ / "hub/snapshots/x/sub");
    fs::create_directories(folder_ / "hub/blobs");
    write_file(folder_ / "secret", "secret");
    write_file(folder_ / ("hub/blobs/" + kHash), "blob");
    write_file(snapshot_ / "plain", "plain");
    write_file(snapshot_ / "sub/inner", "inner");
    fd_ = ::open(snapshot_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  }
  ~Links() override { ::close(fd_); }

  void link(const std::string& name, const fs::path& target) { fs::create_symlink(target, snapshot_ / name); }
  /// The contents of the file, or the errno.
  std::string opened(const std::string& name) {
    const int fd = open_in_folder(fd_, name, GetParam());
    if (fd < 0) return ::strerrorname_np(errno);
    return as_text(MappedFile(fd, name).bytes());
  }

  TempFolder folder_;
  fs::path snapshot_ = folder_ / "hub/snapshots/x";
  int fd_ = -1;
};

TEST_P(Links, FilesOfTheFolderAreOpened) {
  EXPECT_EQ(opened("plain"), "plain");
  EXPECT_EQ(opened("none"), "ENOENT");
}

TEST_P(Links, PathsAreNot) {
  for (const char* path : {"sub/inner", "../x/plain", "..", ".", "", "./plain"}) EXPECT_EQ(opened(path), "EINVAL");
  EXPECT_EQ(opened((folder_ / "secret").string()), "EINVAL");
}

TEST_P(Links, OnlyThoseOfTheNoteAreFollowed) {
  link("beside", "plain");
  link("blob", "../../blobs/" + kHash);
  link("gone", "../../blobs/" + std::string(64, 'b'));
  EXPECT_EQ(opened("beside"), "plain");
  EXPECT_EQ(opened("blob"), "blob");
  EXPECT_EQ(opened("gone"), "ENOENT");

  write_file(folder_ / "hub/blobs/short", "short");
  write_file(folder_ / "hub/blobs/secret.txt", "secret");
  fs::create_symlink("../../secret", folder_ / ("hub/blobs/" + std::string(64, 'c')));
  link("secret", "../../../secret");
  link("absolute", folder_ / "secret");
  link("absolute_inside", snapshot_ / "plain");
  link("twice", "beside");
  link("itself", "itself");
  link("inner", "sub/inner");
  link("short", "../../blobs/short");
  link("no_hash", "../../blobs/secret.txt");
  link("through", "../../blobs/../blobs/" + kHash);
  link("linked_blob", "../../blobs/" + std::string(64, 'c'));
  link("dots", "..");
  link("long", "../../blobs/" + std::string(3000, 'a'));
  link("deeper", "../../../hub/blobs/" + kHash);
  link("upper", "../../blobs/" + std::string(64, 'A'));
  for (const char* name : {"secret", "absolute", "absolute_inside", "twice", "itself", "inner", "short", "no_hash",
                           "through", "linked_blob", "dots", "long", "deeper", "upper"})
    EXPECT_EQ(opened(name), "ELOOP") << name;
}

TEST_P(Links, BlobsMustNotBeALinkItself) {
  fs::rename(folder_ / "hub/blobs", folder_ / "elsewhere");
  fs::create_symlink("../elsewhere", folder_ / "hub/blobs");
  link("blob", "../../blobs/" + kHash);
  EXPECT_NE(opened("blob"), "blob");
}

TEST_P(Links, APipeDoesNotMakeUsWait) {
  ASSERT_EQ(::mkfifo((snapshot_ / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(opened("pipe"), CheckpointError);
}

INSTANTIATE_TEST_SUITE_P(OpenBeneath, Links, ::testing::Bool(),
                         [](const auto& with) { return with.param ? "Openat2" : "Openat"; });

}  // namespace
}  // namespace trireme::files
