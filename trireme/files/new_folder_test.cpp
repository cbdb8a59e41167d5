#include "trireme/files/new_folder.hpp"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/temp_folder.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::files {
namespace {

namespace fs = std::filesystem;

std::size_t entries(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), {}));
}

TEST(NewFolder, AppearsWhenItIsPublished) {
  const TempFolder temp;
  {
    NewFolder folder(temp.path() / "made/out");
    std::ofstream(folder.path() / "file") << "x";
    EXPECT_FALSE(fs::exists(temp.path() / "made/out"));
    folder.publish();
  }
  EXPECT_EQ(file_contents(temp.path() / "made/out/file"), "x");
  EXPECT_EQ(entries(temp.path() / "made"), 1u);
}

TEST(NewFolder, LeavesNothingOtherwise) {
  const TempFolder temp;
  {
    const NewFolder folder(temp.path() / "out");
    std::ofstream(folder.path() / "file") << "x";
  }
  EXPECT_EQ(entries(temp.path()), 0u);
}

TEST(NewFolder, ReplacesAnEmptyFolderOnly) {
  const TempFolder temp;
  fs::create_directory(temp.path() / "empty");
  NewFolder(temp.path() / "empty").publish();
  fs::create_directories(temp.path() / "full/x");
  for (const char* name : {"full", "full/"})
    EXPECT_THAT(message_of<CheckpointError>([&] { NewFolder folder(temp.path() / name); }),
                testing::HasSubstr("already exists and is not empty"));
  std::ofstream(temp.path() / "file") << "x";
  EXPECT_THROW(NewFolder(temp.path() / "file"), CheckpointError);
}

}  // namespace
}  // namespace trireme::files
