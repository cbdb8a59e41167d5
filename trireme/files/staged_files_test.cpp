#include "trireme/files/staged_files.hpp"

#include <set>
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/testing/file_size_limit.hpp"
#include "trireme/testing/files_helpers.hpp"

namespace trireme::files {
namespace {

using ::testing::HasSubstr;

std::set<std::string> names_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

using Names = std::set<std::string>;

TEST(StagedFiles, AppearTogetherAndOnlyWhenPublished) {
  const TempFolder folder;
  StagedFiles files;
  StagedFile& a = files.add(folder / "a");
  files.add(folder / "b").append("bb");
  a.append("he");
  a.append("llo");
  EXPECT_EQ(a.size(), 5u);
  EXPECT_FALSE(names_in(folder.path()).contains("a"));
  files.publish();
  EXPECT_EQ(names_in(folder.path()), (Names{"a", "b"}));
  EXPECT_EQ(file_contents(folder / "a"), "hello");
  EXPECT_EQ(file_contents(folder / "b"), "bb");
}

TEST(StagedFiles, LeaveNothingWhenDropped) {
  const TempFolder folder;
  write_file(folder / "a", "old");
  {
    StagedFiles files, others;
    files.add(folder / "a").append(std::string(1'000'000, 'x'));
    others.add(folder / "a").append("y");  // another writer of the same name
    EXPECT_EQ(names_in(folder.path()).size(), 3u);
  }
  EXPECT_EQ(names_in(folder.path()), (Names{"a"}));
  EXPECT_EQ(file_contents(folder / "a"), "old");
}

TEST(StagedFiles, LargeAndSmallPiecesKeepTheirOrder) {
  const TempFolder folder;
  std::string wanted;
  StagedFiles files;
  StagedFile& file = files.add(folder / "a");
  for (const std::size_t count : {1, 300'000, 2, 262'143, 1, 262'144, 5, 100'000, 200'000}) {
    const std::string piece(count, static_cast<char>('a' + wanted.size() % 26));
    file.append(piece);
    wanted += piece;
    ASSERT_EQ(file.size(), wanted.size());
  }
  file.overwrite(3, "HEAD");
  wanted.replace(3, 4, "HEAD");
  std::string back(10, '\0');
  file.read_back(0, std::as_writable_bytes(std::span(back)));
  EXPECT_EQ(back, wanted.substr(0, 10));
  EXPECT_THROW(file.read_back(wanted.size() - 5, std::as_writable_bytes(std::span(back))), DataError);
  file.append("end");
  files.publish();
  EXPECT_EQ(file_contents(folder / "a"), wanted + "end");
}

TEST(StagedFiles, TheKeyGoesFirstAndComesLast) {
  const TempFolder folder;
  for (const char* old : {"a", "b", "gone", "key"}) write_file(folder / old, "old");
  std::vector<std::string> states;
  const auto state = [&] {
    std::string out;
    for (const char* name : {"a", "b", "gone", "key"})
      out += std::filesystem::exists(folder / name) ? file_contents(folder / name)[0] : '-';
    states.push_back(out);
  };
  StagedFiles files;
  for (const char* name : {"a", "b", "key"}) files.add(folder / name).append("new");
  files.obsolete(folder / "gone");
  files.obsolete(folder / "never-there");
  files.publish(state);
  state();
  EXPECT_EQ(states, (std::vector<std::string>{"oooo", "ooo-", "oo--", "oo--", "no--", "nn--", "nn-n"}));
}

TEST(StagedFiles, ALoneFileIsReplacedInOneStep) {
  const TempFolder folder;
  write_file(folder / "a", "old");
  StagedFiles files;
  files.add(folder / "a").append("new");
  files.publish([&] { EXPECT_EQ(file_contents(folder / "a"), "old"); });
  EXPECT_EQ(file_contents(folder / "a"), "new");
}

TEST(StagedFiles, AFullDiskIsADataErrorAndLeavesTheOldFiles) {
  const TempFolder folder;
  write_file(folder / "a", "old");
  {
    StagedFiles files;
    StagedFile& file = files.add(folder / "a");
    const FileSizeLimit limit(1'000);
    const std::string message = message_of<DataError>([&] {
      file.append(std::string(2'000, 'x'));
      files.publish();
    });
    EXPECT_THAT(message, HasSubstr((folder / "a").string() + ": cannot write 2000 bytes: File too large"));
    EXPECT_THAT(message, HasSubstr("fix: ulimit -f unlimited"));
  }
  EXPECT_EQ(names_in(folder.path()), (Names{"a"}));
  EXPECT_EQ(file_contents(folder / "a"), "old");
}

TEST(StagedFiles, SettledEarlyTheyWaitForTheOthers) {
  const TempFolder folder;
  StagedFiles files;
  StagedFile& first = files.add(folder / "a", "the first");
  first.append("aa");
  first.settle();
  EXPECT_FALSE(names_in(folder.path()).contains("a"));
  EXPECT_THAT(message_of<DataError>([&] { first.append(std::string(1'000'000, 'x')); }),
              HasSubstr("the first: cannot write 1000000 bytes: "));
  files.add(folder / "b").append("b");
  files.publish();
  EXPECT_EQ(names_in(folder.path()), (Names{"a", "b"}));
  EXPECT_EQ(file_contents(folder / "a"), "aa");
}

TEST(StagedFiles, NamesTheFolderThatIsNotThere) {
  const TempFolder folder;
  EXPECT_THAT(message_of<ConfigError>([&] { StagedFile file(folder / "no/a"); }),
              HasSubstr((folder / "no/a").string() + ": cannot be opened for writing: No such file or directory"));
}

TEST(StagedFiles, WhatIsInTheWayIsNamed) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "a/b");
  StagedFiles files;
  files.add(folder / "a").append("x");
  EXPECT_THAT(message_of<DataError>([&] { files.publish(); }), HasSubstr("a: cannot be renamed to from "));
}

}  // namespace
}  // namespace trireme::files
