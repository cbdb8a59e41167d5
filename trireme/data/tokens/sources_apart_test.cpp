#include "trireme/data/tokens/sources_apart.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/documents.hpp"

namespace trireme::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class SourcesApart : public testing::Test {
 protected:
  SourcesApart() {
    std::filesystem::create_directories(folder_ / "deep/other");
    for (const char* name : {"a", "b", "deep/c"}) write_documents(TokenFormat::datatrove, folder_ / name, {{1, 2}});
    write_documents(TokenFormat::megatron, folder_ / "deep/other/m", {{1, 2}});
  }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  static std::string fault(const std::vector<std::string>& training, const std::vector<std::string>& validation) {
    try {
      check_sources_apart(training, validation);
    } catch (const DataError& error) {
      return error.what();
    }
    return "none";
  }

  TempFolder folder_;
};

TEST_F(SourcesApart, OtherFilesAreFine) {
  EXPECT_THAT(check_sources_apart({at("a.ds"), at("b"), at("a.ds"), "synthetic"}, {at("deep"), "synthetic"}),
              IsEmpty());
  EXPECT_THAT(check_sources_apart({folder_.path().string()}, {at("deep/c.ds"), at("deep/c.ds")}), IsEmpty())
      << "a folder means its own files, not those of folders in it";
}

TEST_F(SourcesApart, TheSameFileIsFoundByAnyName) {
  EXPECT_THAT(fault({at("a.ds")}, {at("b.ds"), at("a.ds")}),
              AllOf(HasSubstr(at("a.ds") + " and " + at("a.ds") + "\n  fix: "), HasSubstr("validation.fraction")));
  EXPECT_THAT(fault({at("a.ds")}, {at("deep/../a")}), HasSubstr("deep/../a.ds (of "));
  EXPECT_THAT(fault({folder_.path().string()}, {at("b.ds")}),
              HasSubstr(at("b.ds") + " and " + at("b.ds") + " (of " + folder_.path().string() + ")"));
  EXPECT_THAT(fault({at("b.ds")}, {folder_.path().string()}), HasSubstr("hold the same tokens"));
  EXPECT_THAT(fault({at("deep/other/m")}, {at("deep/other/m.bin")}), HasSubstr("m.bin and "));
  std::filesystem::create_symlink(folder_ / "a.ds", folder_ / "deep/z.ds");
  EXPECT_THAT(fault({at("a.ds")}, {at("deep")}), HasSubstr("z.ds (of "));
  std::filesystem::create_hard_link(folder_ / "b.ds", folder_ / "deep/y.ds");
  EXPECT_THAT(fault({at("b.ds")}, {at("deep/y.ds")}), HasSubstr("y.ds and "));
}

TEST_F(SourcesApart, TwoSourcesOfTrainingThatShareAFileAreNoticed) {
  EXPECT_THAT(check_sources_apart({folder_.path().string(), at("b.ds")}, {}),
              ElementsAre(AllOf(HasSubstr("two sources of [[data]] hold the same tokens"), HasSubstr(at("b.ds")))));
}

}  // namespace
}  // namespace trireme::data
