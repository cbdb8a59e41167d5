#include "trireme/base/file_output.hpp"

#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/file_size_limit.hpp"
#include "trireme/testing/temp_folder.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using testing::HasSubstr;

TEST(AppendFile, AppendsAndKeepsWhatWasThere) {
  const TempFolder folder;
  {
    AppendFile file(folder / "a");
    file.append("one\n");
    EXPECT_EQ(file_contents(folder / "a"), "one\n");  // unbuffered
  }
  AppendFile(folder / "a").append("two\n");
  EXPECT_EQ(file_contents(folder / "a"), "one\ntwo\n");
}

TEST(AppendFile, KnowsItsEnd) {
  const TempFolder folder;
  AppendFile file(folder / "a");
  EXPECT_TRUE(file.ends_with('\n'));
  file.append("x");
  EXPECT_FALSE(file.ends_with('\n'));
  EXPECT_TRUE(file.ends_with('x'));
}

TEST(AppendFile, ThatCannotBeOpenedIsAConfigErrorWithPathAndReason) {
  const TempFolder folder;
  const std::string message = message_of<ConfigError>([&] { AppendFile file(folder / "no/such/folder"); });
  EXPECT_THAT(message, HasSubstr((folder / "no/such/folder").string()));
  EXPECT_THAT(message, HasSubstr("No such file or directory"));
}

TEST(AppendFile, AFullDiskIsADataErrorWithPathAndReason) {
  AppendFile full("/dev/full");
  const std::string message = message_of<DataError>([&] { full.append("x"); });
  EXPECT_THAT(message, HasSubstr("/dev/full"));
  EXPECT_THAT(message, HasSubstr("No space left on device"));
}

TEST(AppendFile, TakesBackARecordThatDoesNotFit) {
  const TempFolder folder;
  AppendFile file(folder / "a");
  file.append("first\n");
  {
    const FileSizeLimit limit(10);
    EXPECT_THROW(file.append("second, too long\n"), DataError);
  }
  EXPECT_EQ(file_contents(folder / "a"), "first\n");
  file.append("third\n");
  EXPECT_EQ(file_contents(folder / "a"), "first\nthird\n");
}

TEST(ReplaceFile, ReplacesAndLeavesNothingBehind) {
  const TempFolder folder;
  std::ofstream(folder / "a") << "a much longer text than the new one";
  replace_file(folder / "a", "new");
  EXPECT_EQ(file_contents(folder / "a"), "new");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(ReplaceFile, KeepsTheOldFileIfItFails) {
  const TempFolder folder;
  std::ofstream(folder / "a") << "old";
  std::string message;
  {
    const FileSizeLimit limit(2);
    message = message_of<DataError>([&] { replace_file(folder / "a", "new"); });
  }
  EXPECT_THAT(message, HasSubstr((folder / "a").string() + ": cannot write 3 bytes: File too large"));
  EXPECT_EQ(file_contents(folder / "a"), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(ReplaceFile, NamesThePathItCannotOpen) {
  const TempFolder folder;
  const std::string message = message_of<ConfigError>([&] { replace_file(folder / "no/a", "x"); });
  EXPECT_THAT(message, HasSubstr((folder / "no/a").string() + ": cannot be opened"));
}

TEST(MakeFolder, MakesParentsToo) {
  const TempFolder folder;
  make_folder(folder / "a/b");
  make_folder(folder / "a/b");
  EXPECT_TRUE(std::filesystem::is_directory(folder / "a/b"));
  std::ofstream(folder / "file") << "x";
  const std::string message = message_of<ConfigError>([&] { make_folder(folder / "file/sub"); });
  EXPECT_THAT(message, HasSubstr((folder / "file/sub").string()));
}

}  // namespace
}  // namespace trireme
