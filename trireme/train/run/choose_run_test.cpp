#include "trireme/train/run/choose_run.hpp"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/file_output.hpp"
#include "trireme/checkpoint/format/commit.hpp"
#include "trireme/files/folder_lock.hpp"
#include "trireme/runtime/rank/fingerprint.hpp"
#include "trireme/testing/temp_folder.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ChooseRun : public testing::Test {
 protected:
  Config config(const std::string& name, const std::string& resume = "auto", double lr = 0.1) const {
    Config out;
    out.run.dir = dir_.path().string();
    out.run.name = name;
    out.checkpoint.resume = resume;
    out.optimizer.lr = lr;
    out.training.steps = 8;
    return out;
  }

  /// A run that has saved this step; `age` seconds ago.
  fs::path saved(const std::string& folder, const Config& config, std::int64_t step, int age = 0) const {
    const fs::path run = dir_ / folder;
    fs::create_directory(run);
    std::ofstream(run / "metrics.jsonl") << "";  // the records may be lost: a checkpoint is enough
    const std::string id = "0123456789abcdef0123456789abcde" + std::to_string(step);
    checkpoint::Manifest manifest{.id = id, .program = "test", .time = "now"};
    manifest.config = fingerprint_of_config(config);
    manifest.training.step = step;
    const checkpoint::SaveTarget target{.folder = run / "checkpoints", .step = step, .id = id};
    checkpoint::begin_save(files::real_fs(), target);
    checkpoint::commit(files::real_fs(), target, manifest, {});
    const auto time = fs::file_time_type::clock::now() - std::chrono::seconds(age);
    for (const char* name : {"metrics.jsonl", "checkpoints"}) fs::last_write_time(run / name, time);
    return run;
  }

  ChosenRun chosen(const Config& config, const std::string& start = "", int attempt = 0) const {
    const KeyValues given = fingerprint_of_config(config);
    return choose_run({.config = config, .given = given, .start = start, .attempt = attempt});
  }

  TempFolder dir_;
};

TEST_F(ChooseRun, ItsOwnNameFirstThenItsNumberedRuns) {
  const fs::path first = saved("r", config("r"), 4, /*age=*/100), second = saved("r-2", config("r"), 2);
  saved("r-3", config("r-3"), 2);  // somebody's own name
  EXPECT_EQ(chosen(config("r")).folder.path, first) << "although its second run is newer";
  saved("r", config("r"), 8, /*age=*/100);
  EXPECT_EQ(chosen(config("r")).folder.path, second) << "the first one is complete";
  EXPECT_EQ(chosen(config("r-3")).folder.path, dir_ / "r-3");
}

TEST_F(ChooseRun, ACompleteRunIsNotTrainedAgain) {
  const fs::path complete = saved("r", config("r"), 8);
  saved("r-2", config("r"), 2, /*age=*/100);  // given up long ago
  const ChosenRun run = chosen(config("r"));
  EXPECT_EQ(run.folder.path, complete);
  EXPECT_FALSE(run.folder.is_new);
  EXPECT_THAT(run.complete, testing::AllOf(HasSubstr("/r is complete (8 steps): nothing to do"),
                                           HasSubstr("trireme convert " + (complete / "checkpoints/step-8").string()),
                                           HasSubstr("--resume never starts a new run")));
  Config longer = config("r");
  longer.training.steps = 9;
  EXPECT_EQ(chosen(longer).complete, "");
  const ChosenRun again = chosen(config("r", "never"));
  EXPECT_EQ(again.folder.path, dir_ / "r-3");
  EXPECT_EQ(again.complete, "");
}

TEST_F(ChooseRun, AnotherRunOfTheUsersOwnNameIsAnError) {
  const fs::path run = saved("r", config("r"), 4), dated = saved("d-dp2", config("d-%layout"), 4);
  {
    const files::FolderLock held(run), held_too(dated);
    EXPECT_THAT(message_of<ConfigError>([&] { chosen(config("r")); }),
                testing::AllOf(HasSubstr("another run writes to this folder: pid"), HasSubstr("--run.name")));
    const ChosenRun other = chosen(config("d-%layout"));
    EXPECT_EQ(other.folder.path, dir_ / "d-single") << "every start has a folder of its own";
    EXPECT_THAT(other.notes, ElementsAre(HasSubstr("is not resumed: another run writes to this folder")));
  }
  fs::create_directory(run / ".lock");
  EXPECT_THAT(message_of<ConfigError>([&] { chosen(config("r")); }), HasSubstr("cannot be read as a lock file"));
  EXPECT_FALSE(fs::exists(dir_ / "r-2")) << "it is not trained a second time";
}

TEST_F(ChooseRun, ARunWithoutRecordsIsFoundByItsCheckpoints) {
  const fs::path run = saved("r", config("r"), 4);
  EXPECT_EQ(chosen(config("r")).folder.path, run) << "metrics.jsonl is empty";
  fs::remove(run / "metrics.jsonl");
  const ChosenRun again = chosen(config("r"));
  EXPECT_EQ(again.folder.path, run);
  EXPECT_FALSE(again.folder.is_new);
  EXPECT_THAT(again.notes, IsEmpty());
}

TEST_F(ChooseRun, WithAPlaceholderOnlyTheSameConfigOfTheSameName) {
  saved("t-dp2", config("t-%layout"), 4);
  EXPECT_EQ(chosen(config("t-%layout")).folder.path, dir_ / "t-dp2");
  EXPECT_EQ(chosen(config("t-%layout", "auto", 0.2)).folder.path, dir_ / "t-single");
  fs::remove_all(dir_ / "t-single");
  EXPECT_NE(chosen(config("%jobid")).folder.path, dir_ / "t-dp2") << "a pattern that fits every name";
}

TEST_F(ChooseRun, OfAPathTheRunThatTheSameCommandHasBegun) {
  saved("r", config("r"), 4);  // not from that path
  const fs::path begun = saved("r-2", config("r", "runs/base"), 4, /*age=*/100);
  EXPECT_EQ(chosen(config("r", "runs/base")).folder.path, begun);
  EXPECT_EQ(chosen(config("r", "runs/other")).folder.path, dir_ / "r-3");
  EXPECT_EQ(chosen(config("r", "runs/base", 0.2)).folder.path, dir_ / "r-4") << "other settings are another run";
  saved("r-2", config("r", "runs/base"), 8);
  EXPECT_THAT(chosen(config("r", "runs/base")).complete, HasSubstr("r-2 is complete"));
}

TEST_F(ChooseRun, OfALauncherThatRestartsItsRanksTheRunThatTheyHaveBegun) {
  saved("r", config("r", "never"), 4);
  for (const char* resume : {"never", "auto", "runs/base"}) {
    const Config now = config("new", resume);
    const fs::path begun = chosen(now, "launcher 1").folder.path;
    EXPECT_EQ(chosen(now, "launcher 1", 1).folder.path, begun) << resume;
    EXPECT_NE(chosen(now, "launcher 2", 1).folder.path, begun) << "of another launcher";
    fs::remove_all(begun);
  }
  EXPECT_EQ(chosen(config("r", "never"), "launcher 3", 1).folder.path, dir_ / "r-2") << "never means never";
}

}  // namespace
}  // namespace trireme
