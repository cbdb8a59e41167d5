#include "trireme/files/whole_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/testing/files_helpers.hpp"

namespace trireme::files {
namespace {

TEST(WholeFile, HasALimit) {
  const TempFolder folder;
  for (const std::string& bytes : {std::string(), std::string("a\0\r\n", 4)}) {
    write_file(folder / "a", bytes);
    EXPECT_EQ(whole_file(folder / "a", 4, "a note"), bytes);
  }
  EXPECT_THAT(message_of<DataError>([&] { whole_file(folder / "a", 3, "a note"); }),
              testing::EndsWith("a: 4 bytes; a note has at most 3"));
  EXPECT_THROW(whole_file(folder / "b", 3, "a note"), DataError);
}

TEST(WholeFile, ItsIdentityIsThatOfItsLinks) {
  const TempFolder folder;
  for (const char* name : {"a", "b"}) write_file(folder / name, "the same words");
  std::filesystem::create_symlink("a", folder / "link");
  EXPECT_EQ(identity_of(folder / "link"), identity_of(folder / "a"));
  EXPECT_NE(identity_of(folder / "b"), identity_of(folder / "a"));
  EXPECT_EQ(identity_of(folder / "none"), std::nullopt);
}

}  // namespace
}  // namespace trireme::files
