#include "trireme/checkpoint/format/exported_files.hpp"

#include <cerrno>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/format/reader.hpp"
#include "trireme/testing/checkpoint_helpers.hpp"
#include "trireme/testing/files_helpers.hpp"
#include "trireme/testing/recording_fs.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct SavedStep {
  SavedStep() { save_example(files::real_fs(), folder.path(), {.step = 10, .number = 10}); }

  void write_export(files::Fs& fs) const {
    const std::filesystem::path exported = begin_export(fs, path);
    write_file(exported / "model.safetensors", "weights");
    write_file(exported / "model.safetensors.index.json", "{}");
    add_exported(fs, exported, path);
  }
  std::vector<std::string> faults() const { return faults_of_exported(path, exported_in(path, id).value()); }

  TempFolder folder{memory_folder()};
  std::filesystem::path path = folder / "step-10";
  std::string id = example_id(10);
};

TEST(ExportedFiles, AreListedWithTheirHashes) {
  const SavedStep saved;
  EXPECT_FALSE(exported_in(saved.path, saved.id).has_value());
  saved.write_export(files::real_fs());
  EXPECT_THAT(saved.faults(), ElementsAre());
  EXPECT_EQ(why_not_valid(saved.path), "") << "a checkpoint as before";
  EXPECT_FALSE(has_unfinished(saved.folder.path()));

  write_file(saved.path / "model.safetensors", "w8ights");
  EXPECT_THAT(saved.faults(), ElementsAre(HasSubstr("model.safetensors: has the hash")));
  write_file(saved.path / "model.safetensors", "other weights");
  EXPECT_THAT(saved.faults(), ElementsAre(HasSubstr("model.safetensors: has 13 bytes, not 7")));
  std::filesystem::remove(saved.path / "model.safetensors");
  EXPECT_THAT(saved.faults(), ElementsAre("model.safetensors: is missing"));
  EXPECT_THAT(message_of<CheckpointError>([&] { exported_in(saved.path, example_id(11)); }),
              HasSubstr("is of another checkpoint"));
  write_file(saved.path / kExportListName, "{");
  EXPECT_THAT(message_of<CheckpointError>([&] { exported_in(saved.path, saved.id); }), HasSubstr(kExportListName));
}

/// Whatever fails: the checkpoint is complete, what a list names is there, and the export can be made again.
TEST(ExportedFiles, AFailureCostsOnlyTheExport) {
  for (int number = 0;; ++number) {
    const SavedStep saved;
    FailingFs failing({.number = number, .error = ENOSPC});
    try {
      saved.write_export(failing);
    } catch (const CheckpointError&) {
    }
    EXPECT_EQ(why_not_valid(saved.path), "") << number;
    if (exported_in(saved.path, saved.id)) {
      EXPECT_THAT(saved.faults(), ElementsAre()) << number;
    }
    remove_unfinished(files::real_fs(), saved.folder.path());
    saved.write_export(files::real_fs());
    EXPECT_THAT(saved.faults(), ElementsAre()) << number;
    if (!failing.has_failed()) break;
    ASSERT_LT(number, 100);
  }
}

}  // namespace
}  // namespace trireme::checkpoint
