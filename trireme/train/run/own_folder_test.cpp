#include "trireme/train/run/own_folder.hpp"

#include <fstream>
#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/checkpoint_helpers.hpp"
#include "trireme/testing/temp_folder.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

void save(const fs::path& run, std::int64_t step) {
  save_example(files::real_fs(), run / "checkpoints", {.step = step, .number = static_cast<std::uint64_t>(step)});
}

TEST(OwnFolder, RemovesWhatIsUnfinished) {
  const TempFolder run;
  save(run.path(), 4);
  const fs::path unfinished = run / "checkpoints/step-6.tmp-0123456789abcdef0123456789abcdef";
  fs::create_directory(unfinished);
  std::vector<std::string> warnings;
  const OwnFolder own(run.path(), warnings);
  EXPECT_FALSE(fs::exists(unfinished));
  EXPECT_THAT(own.to_resume_from("auto"), ElementsAre(run / "checkpoints/step-4"));
  EXPECT_THAT(warnings, IsEmpty());
}

TEST(OwnFolder, ListsWhatTheOneBeforeItHasSaved) {
  const TempFolder run;
  save(run.path(), 4);
  std::vector<std::string> warnings;
  auto before = std::make_unique<OwnFolder>(run.path(), warnings);
  std::future<std::vector<fs::path>> found = std::async(std::launch::async, [&] {
    std::vector<std::string> none;
    return OwnFolder(run.path(), none).to_resume_from("auto");
  });
  save(run.path(), 6);
  before.reset();
  EXPECT_THAT(found.get(), ElementsAre(run / "checkpoints/step-6", run / "checkpoints/step-4"));
}

TEST(OwnFolder, WarnsOfRecordsThatAreLost) {
  const TempFolder run;
  save(run.path(), 8);
  const auto warned = [&] {
    std::vector<std::string> warnings;
    OwnFolder(run.path(), warnings).begin_after(8, {}, warnings);
    return warnings;
  };
  EXPECT_THAT(warned(), ElementsAre(HasSubstr("metrics.jsonl: the records of steps 1 to 8 are missing")));
  std::ofstream(run / "metrics.jsonl") << "{\"step\":1}\n{\"step\":2}\n{\"step\":6}\n{\"ste";
  EXPECT_THAT(warned(), ElementsAre(HasSubstr("steps 3 to 5 are missing"), HasSubstr("steps 7 to 8 are missing")));
  std::ofstream(run / "metrics.jsonl")
      << "{\"step\":7}\n{\"step\":8}\n{\"step\":9}\n";  // resumed from step 6 of another run
  EXPECT_THAT(warned(), IsEmpty());
}

TEST(OwnFolder, SetsAsideOnlyWhatCouldNotBeUsed) {
  const TempFolder run, other;
  save(run.path(), 4);
  save(run.path(), 6);
  save(run.path(), 8);
  save(other.path(), 8);
  std::ofstream(run / "metrics.jsonl") << "{\"step\":4}\n{\"step\":5}\n";
  std::vector<std::string> warnings;
  const OwnFolder own(run.path(), warnings);
  own.begin_after(4, {run / "checkpoints/step-6", other / "checkpoints/step-8"}, warnings);
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("step-6 is renamed to step-6.damaged")));
  EXPECT_THAT(own.to_resume_from("auto"), ElementsAre(run / "checkpoints/step-8", run / "checkpoints/step-4"));
  EXPECT_TRUE(fs::exists(other / "checkpoints/step-8")) << "another run's";
  EXPECT_EQ(file_contents(run / "metrics.jsonl"), "{\"step\":4}\n");
  own.begin_after(0, {}, warnings);
  EXPECT_EQ(file_contents(run / "metrics.jsonl"), "") << "begun anew without a checkpoint";
}

TEST(OwnFolder, NeedsNoRecords) {
  const TempFolder run;
  std::vector<std::string> warnings;
  OwnFolder(run.path(), warnings).begin_after(4, {}, warnings);
  EXPECT_THAT(warnings, IsEmpty());
}

TEST(OwnFolder, APathIsForARunWithoutCheckpointsOfItsOwn) {
  const TempFolder run, base;
  save(base.path(), 6);
  std::vector<std::string> warnings;
  const OwnFolder own(run.path(), warnings);
  EXPECT_THAT(own.to_resume_from("never"), IsEmpty());
  for (const fs::path& given : {base.path(), base / "checkpoints", base / "checkpoints/step-6"})
    EXPECT_THAT(own.to_resume_from(given.string()), ElementsAre(base / "checkpoints/step-6")) << given;
  EXPECT_THROW(own.to_resume_from((run / "no").string()), CheckpointError);
  EXPECT_THROW(own.to_resume_from(run.path().string()), CheckpointError);
  save(run.path(), 2);
  for (const std::string& resume : {std::string("never"), base.path().string()})
    EXPECT_THAT(own.to_resume_from(resume), ElementsAre(run / "checkpoints/step-2")) << resume;
}

}  // namespace
}  // namespace trireme
