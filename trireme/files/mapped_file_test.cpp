#include "trireme/files/mapped_file.hpp"

#include <fstream>
#include <utility>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "trireme/testing/files_helpers.hpp"
#include "trireme/testing/temp_folder.hpp"

namespace trireme::files {
namespace {

using ::testing::HasSubstr;

TEST(MappedFile, IsTheFilesBytes) {
  const TempFolder folder;
  write_file(folder / "a", "hello");
  MappedFile file(folder / "a");
  EXPECT_EQ(as_text(file.bytes()), "hello");
  MappedFile other(folder / "a");
  other = std::move(file);
  EXPECT_EQ(as_text(other.bytes()), "hello");
  const MappedFile third = std::move(other);
  EXPECT_EQ(as_text(third.bytes()), "hello");
  EXPECT_EQ(third.shown(), (folder / "a").string());
}

TEST(MappedFile, AnEmptyFileIsNoBytes) {
  const TempFolder folder;
  write_file(folder / "empty", "");
  EXPECT_TRUE(MappedFile(folder / "empty").bytes().empty());
}

TEST(MappedFile, RefusesWhatIsNotAFileWithoutWaiting) {
  const TempFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  const auto refusal = [](const std::filesystem::path& path) {
    return message_of<CheckpointError>([&] { MappedFile file(path); });
  };
  EXPECT_THAT(refusal(folder / "pipe"), HasSubstr("pipe is not a regular file"));
  EXPECT_THAT(refusal(folder.path()), HasSubstr(" is not a regular file"));
  EXPECT_THAT(refusal(folder / "none"), HasSubstr("none: cannot be opened: No such file or directory"));
  EXPECT_THAT(message_of<CheckpointError>([] { MappedFile file(-1, "x"); }), HasSubstr("x: fstat failed"));
}

TEST(MappedFile, KeepsNoDescriptor) {
  const TempFolder folder;
  write_file(folder / "a", "hello");
  const int before = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const MappedFile file(folder / "a");
  EXPECT_THROW(MappedFile{folder.path()}, CheckpointError);
  const int after = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(after, before + 1);
  ::close(before);
  ::close(after);
}

}  // namespace
}  // namespace trireme::files
