#include "trireme/checkpoint/format/commit.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/checkpoint/format/step_folder.hpp"
#include "trireme/testing/checkpoint_helpers.hpp"
#include "trireme/testing/files_helpers.hpp"
#include "trireme/testing/recording_fs.hpp"

namespace trireme::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> sorted_names(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

void save_steps(const std::filesystem::path& folder, std::initializer_list<std::int64_t> steps) {
  for (const std::int64_t step : steps)
    save_example(files::real_fs(), folder, {.step = step, .number = static_cast<std::uint64_t>(step)});
}

TEST(StepFolder, NamesAreExact) {
  EXPECT_EQ(step_in_name("step-400"), 400);
  EXPECT_EQ(step_in_name("step-0"), 0);
  for (const char* name :
       {"step-0400", "step-", "step--1", "step-4 ", "Step-4", "step-4.tmp-1", "step-99999999999999999999"})
    EXPECT_FALSE(step_in_name(name)) << name;
  const std::string id = example_id(1);
  for (const std::string& name : {temporary_step_name(4, id), trash_name(4, id), temporary_latest_name(id)})
    EXPECT_TRUE(is_unfinished_name(name)) << name;
  for (const std::string& name : {step_name(4), "step-4.tmp-" + id + "0", "my-step-4.tmp-" + id, ".trash-" + id,
                                  ".trash-step-4-" + id.substr(1), std::string("latest"), std::string(".latest.tmp-")})
    EXPECT_FALSE(is_unfinished_name(name)) << name;
}

TEST(Commit, ACheckpointAppearsWithAllItsFiles) {
  const TempFolder folder;
  const std::filesystem::path checkpoints = folder / "checkpoints";
  save_steps(checkpoints, {10, 20});
  EXPECT_THAT(sorted_names(checkpoints), ElementsAre("latest", "step-10", "step-20"));
  EXPECT_THAT(sorted_names(checkpoints / "step-20"),
              ElementsAre("checkpoint_metadata.json", "config.json", "inner", "rank-00000.json",
                          "rank-00000.safetensors", "rank-00001.json", "rank-00001.safetensors"));
  EXPECT_THAT(sorted_names(checkpoints / "step-20/inner"), ElementsAre("most"));
  EXPECT_EQ(file_contents(checkpoints / "latest"), "step-20\n");
  EXPECT_EQ(why_not_valid(checkpoints / "step-20"), "");
  const auto found = checkpoints_in(checkpoints);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].step, 20);
  EXPECT_EQ(found[1].path, checkpoints / "step-10");
  EXPECT_TRUE(checkpoints_in(folder / "nothing").empty());
}

TEST(Commit, TheFoldersAboveAreDurableToo) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "run");
  RecordingFs fs;
  for (const std::int64_t step : {10, 20}) {  // made by the save, and found by it
    fs.log.clear();
    save_example(fs, folder / "run/checkpoints", {.step = step, .number = static_cast<std::uint64_t>(step)});
    std::vector<std::filesystem::path> synced;
    for (const FsOp& op : fs.log)
      if (op.kind == FsKind::sync_folder) synced.push_back(op.path);
    EXPECT_THAT(synced, ::testing::IsSupersetOf({folder / "run", folder.path(), std::filesystem::path("/")}));
  }
  FailingFs failing({.number = 0, .error = EIO, .kind = FsKind::sync_folder});
  EXPECT_THAT(message_of<CheckpointError>([&] { save_example(failing, folder / "run/more", {}); }),
              HasSubstr("run: cannot be flushed to disk: Input/output error"));
}

TEST(Commit, AValidStepIsNotReplacedAnInvalidOneIs) {
  const TempFolder folder;
  save_steps(folder.path(), {10});
  EXPECT_THAT(
      message_of<CheckpointError>([&] { save_example(files::real_fs(), folder.path(), {.step = 10, .number = 11}); }),
      HasSubstr("step-10: this step is already saved"));
  std::filesystem::remove(folder / "step-10/config.json");
  std::filesystem::create_directories(folder / "step-10/deep/er");
  std::filesystem::create_symlink(folder / "latest", folder / "step-10/deep/link");
  save_example(files::real_fs(), folder.path(), {.step = 10, .number = 12});
  EXPECT_EQ(Reader(folder / "step-10").manifest().id, example_id(12));
  EXPECT_THAT(sorted_names(folder.path()), ElementsAre("latest", "step-10"));
}

TEST(Commit, AMissingFileOfARankIsFoundBeforeTheRename) {
  const TempFolder folder;
  const ExampleFiles made = example_files({});
  const SaveTarget target = example_target(folder.path(), {});
  begin_save(files::real_fs(), target);
  write_file(target.temporary() / made.ranks[0].first, made.ranks[0].second);
  EXPECT_THAT(message_of<CheckpointError>([&] { commit(files::real_fs(), target, made.manifest, made.small); }),
              AllOf(HasSubstr("the save of step 10 is not complete"), HasSubstr("rank-00001.safetensors: is missing"),
                    HasSubstr("file system that all hosts share")));
  abandon(files::real_fs(), target);
  EXPECT_TRUE(sorted_names(folder.path()).empty());
}

TEST(Prune, KeepsTheNewestValidOnes) {
  const TempFolder folder;
  save_steps(folder.path(), {10, 20, 30, 40, 50});
  std::filesystem::remove(folder / "step-40/config.json");  // is not valid: neither counts nor is removed
  EXPECT_TRUE(prune(files::real_fs(), folder.path(), 0).empty());
  EXPECT_THAT(prune(files::real_fs(), folder.path(), 3), ElementsAre(folder / "step-10"));
  EXPECT_THAT(prune(files::real_fs(), folder.path(), 1), ElementsAre(folder / "step-20"));  // two always stay
  EXPECT_THAT(sorted_names(folder.path()), ElementsAre("latest", "step-30", "step-40", "step-50"));
  EXPECT_TRUE(prune(files::real_fs(), folder / "nothing", 2).empty());
}

TEST(Prune, KeepsThoseOfSomeStepsForEver) {
  const TempFolder folder(memory_folder());
  save_steps(folder.path(), {10, 15, 20, 25, 30, 40, 45, 50});
  EXPECT_THAT(prune(files::real_fs(), folder.path(), 2, /*keep_every=*/20),
              ElementsAre(folder / "step-30", folder / "step-25", folder / "step-15", folder / "step-10"));
  EXPECT_THAT(sorted_names(folder.path()), ElementsAre("latest", "step-20", "step-40", "step-45", "step-50"));
  EXPECT_TRUE(prune(files::real_fs(), folder.path(), 2, 20).empty()) << "again: nothing";
}

TEST(Prune, LeavesWhatIsNotItsOwn) {
  const TempFolder folder, elsewhere;
  save_steps(folder.path(), {10, 20, 30, 40});
  save_steps(elsewhere.path(), {5});
  std::filesystem::create_symlink(elsewhere / "step-5", folder / "step-5");
  std::filesystem::create_directory(folder / "step-7");
  std::filesystem::create_directory(folder / "step-10/my-evaluation");
  std::filesystem::create_symlink(elsewhere / "step-5", folder / "step-20/link");  // removed, not followed
  EXPECT_THAT(prune(files::real_fs(), folder.path(), 2), ElementsAre(folder / "step-20"));
  EXPECT_THAT(sorted_names(folder.path()), ElementsAre("latest", "step-10", "step-30", "step-40", "step-5", "step-7"));
  EXPECT_EQ(why_not_valid(elsewhere / "step-5"), "");
  EXPECT_THAT(why_not_valid(folder / "step-5"), HasSubstr("is a symlink"));
}

TEST(Prune, AFolderThatMayNotBeWrittenToStays) {
  const TempFolder folder;
  save_steps(folder.path(), {10, 20, 30});
  ::chmod((folder / "step-10").c_str(), 0555);
  if (::geteuid() != 0) {
    EXPECT_TRUE(prune(files::real_fs(), folder.path(), 2).empty());
  } else {  // root may write to every folder: a child becomes somebody else, to whom the others belong
    constexpr uid_t kNobody = 65534;
    for (const std::filesystem::path& own : {folder.path(), folder / "step-20", folder / "step-30"})
      ASSERT_EQ(::chown(own.c_str(), kNobody, kNobody), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const bool right = ::setresuid(kNobody, kNobody, kNobody) == 0 &&
                         ::access((folder / "step-20").c_str(), W_OK) == 0 &&
                         prune(files::real_fs(), folder.path(), 2).empty();
      ::_exit(right ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  ::chmod((folder / "step-10").c_str(), 0755);
  EXPECT_EQ(why_not_valid(folder / "step-10"), "");
}

TEST(RemoveUnfinished, RemovesOnlyWhatASaveOrAPruneLeft) {
  const TempFolder folder, elsewhere;
  save_steps(folder.path(), {10});
  write_file(elsewhere / "precious", "stays");
  const std::string id = example_id(99);
  for (const std::string& name : {temporary_step_name(20, id), trash_name(5, id)}) {
    std::filesystem::create_directory(folder / name);
    write_file(folder / (name + "/rank-00000.safetensors"), "half");
    std::filesystem::create_directory_symlink(elsewhere.path(), folder / (name + "/link"));
  }
  std::filesystem::create_directory_symlink(elsewhere.path(), folder / trash_name(6, id));
  write_file(folder / temporary_latest_name(id), "");
  std::filesystem::create_directory(folder / "step-20.tmp-mine");
  remove_unfinished(files::real_fs(), folder.path());
  EXPECT_THAT(sorted_names(folder.path()), ElementsAre("latest", "step-10", "step-20.tmp-mine"));
  EXPECT_EQ(file_contents(elsewhere / "precious"), "stays");
  remove_unfinished(files::real_fs(), folder / "nothing");
}

/// Every operation of a save fails, each in its own trial: nothing that was there is lost, and the next save works.
struct IoError {
  int error;
  bool partial = false;
};
/// In the names of the tests.
void PrintTo(const IoError& error, std::ostream* out) {
  *out << (error.error == ENOSPC ? "ENOSPC" : error.error == EIO ? "EIO" : "EDQUOT") << (error.partial ? ", half" : "");
}
class IoErrors : public ::testing::TestWithParam<IoError> {};

TEST_P(IoErrors, OfASaveHurtNothing) {
  int calls = 0, refused = 0;
  for (bool reached = true; reached; ++calls) {
    const TempFolder folder(memory_folder());
    const std::filesystem::path checkpoints = folder / "checkpoints";
    save_steps(checkpoints, {10, 20});
    FailingFs fs({.number = calls, .error = GetParam().error, .partial = GetParam().partial});
    const ExampleCheckpoint next{.step = 30, .number = 30};
    const std::string message = message_of<CheckpointError>([&] { save_example(fs, checkpoints, next); });
    reached = fs.has_failed();
    const std::string at = reached ? fs.failed().path.string() : "";
    if (message == "no error") {
      EXPECT_EQ(why_not_valid(checkpoints / "step-30"), "") << at;
      const bool is_hint = at.find("latest") != std::string::npos;
      const bool is_above =
          reached && fs.failed().kind == FsKind::sync_folder && checkpoints.string().starts_with(at + "/");
      EXPECT_TRUE(!reached || is_hint || is_above || at == "/") << calls << " " << at;
    } else {
      ++refused;
      abandon(fs, example_target(checkpoints, next));
      EXPECT_FALSE(std::filesystem::exists(checkpoints / "step-30")) << at;
      save_example(files::real_fs(), checkpoints, {.step = 30, .number = 31});
      EXPECT_EQ(why_not_valid(checkpoints / "step-30"), "") << at;
    }
    for (const char* old : {"step-10", "step-20"}) EXPECT_EQ(why_not_valid(checkpoints / old), "") << at;
    for (const std::string& name : sorted_names(checkpoints))
      EXPECT_FALSE(is_unfinished_name(name)) << name << " " << at;
  }
  EXPECT_GT(calls, 25);
  EXPECT_GT(refused, 20);
}

TEST_P(IoErrors, OfAPruneLeaveTheNewest) {
  int calls = 0;
  for (bool reached = true; reached; ++calls) {
    const TempFolder folder(memory_folder());
    save_steps(folder.path(), {10, 20, 30, 40});
    FailingFs fs({.number = calls, .error = GetParam().error, .partial = GetParam().partial});
    const std::string message = message_of<CheckpointError>([&] { prune(fs, folder.path(), 2); });
    reached = fs.has_failed();
    EXPECT_EQ(message == "no error", !reached) << message;
    for (const char* kept : {"step-30", "step-40"}) EXPECT_EQ(why_not_valid(folder / kept), "");
    for (const FoundCheckpoint& found : checkpoints_in(folder.path())) EXPECT_EQ(why_not_valid(found.path), "");
    prune(files::real_fs(), folder.path(), 2);
    EXPECT_THAT(sorted_names(folder.path()), ElementsAre("latest", "step-30", "step-40"));
  }
  EXPECT_GT(calls, 10);
}

TEST_P(IoErrors, OfAFailedSyncAreNotForgotten) {
  // The second fsync of a file would report success. Each sync fails once; the save is never completed with that file.
  for (int number = 0;; ++number) {
    const TempFolder folder(memory_folder());
    RecordingFs recorded;
    FailingFs fs({.number = number, .error = GetParam().error, .kind = FsKind::sync}, recorded);
    const std::string message = message_of<CheckpointError>([&] { save_example(fs, folder.path(), {}); });
    if (!fs.has_failed()) break;
    for (const FsOp& op : recorded.log)
      EXPECT_FALSE(op.kind == FsKind::sync && op.path == fs.failed().path) << "synced again: " << op.path;
    const bool is_hint = fs.failed().path.string().find("latest") != std::string::npos;
    EXPECT_EQ(message == "no error", is_hint) << fs.failed().path;
    EXPECT_EQ(std::filesystem::exists(folder / "step-10"), is_hint);
  }
}

INSTANTIATE_TEST_SUITE_P(All, IoErrors,
                         ::testing::Values(IoError{ENOSPC}, IoError{EIO}, IoError{EDQUOT}, IoError{ENOSPC, true}));

}  // namespace
}  // namespace trireme::checkpoint
