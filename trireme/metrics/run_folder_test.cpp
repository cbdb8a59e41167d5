#include "trireme/metrics/run_folder.hpp"

#include <fstream>
#include <latch>
#include <set>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/temp_folder.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::metrics {
namespace {

namespace fs = std::filesystem;

/// 2026-11-15 00:31:59.5 UTC
RunFacts some_facts() {
  using namespace std::chrono;
  return {.time = sys_days(2026y / November / 15) + 31min + 59500ms, .job_id = "4711", .layout = "dp2tp2"};
}

TEST(LayoutWord, LeavesOutAxesOfDegreeOne) {
  EXPECT_EQ(layout_word(Grid::dense({.dp = 2, .tp = 2}).axes()), "dp2tp2");
  EXPECT_EQ(layout_word(Grid::dense({.pp = 4, .dp = 16, .cp = 2, .tp = 8}).axes()), "pp4dp16cp2tp8");
  EXPECT_EQ(layout_word(Grid::dense({}).axes()), "single");
  EXPECT_EQ(layout_word({}), "single");
}

TEST(RunName, FillsInItsWords) {
  EXPECT_EQ(run_name("tiny-%date-%layout", some_facts()), "tiny-20261115-0031-dp2tp2");
  EXPECT_EQ(run_name("%jobid_%jobid", some_facts()), "4711_4711");
  EXPECT_EQ(run_name("Llama 3 8B", some_facts()), "Llama 3 8B");
  RunFacts late{};
  late.time = std::chrono::sys_days(std::chrono::year(2027) / 1 / 2) + std::chrono::hours(23) + std::chrono::minutes(5);
  EXPECT_EQ(run_name("%date%layout", late), "20270102-2305single");
}

TEST(RunName, WithoutAJobItIsTheProcess) { EXPECT_EQ(run_name("run-%jobid", {}), "run-" + std::to_string(::getpid())); }

TEST(RunName, RefusesWordsThatItDoesNotKnow) {
  EXPECT_EQ(message_of<ConfigError>([] { run_name("a-%time", {}); }),
            "run.name = \"a-%time\": \"%time\" is not known\n  fix: use %date, %jobid or %layout, or no %");
  for (const char* pattern : {"%dates", "%Date", "50%", "%%date", "% date"})
    EXPECT_THROW(run_name(pattern, some_facts()), ConfigError) << pattern;
}

TEST(RunName, RefusesWhatIsNotOneFolder) {
  EXPECT_EQ(
      message_of<ConfigError>([] { run_name("../%layout", {}); }),
      "run.name = \"../%layout\" gives \"../single\", which is not the name of one folder: no /, no .., not empty\n"
      "  fix: put the folders above it into run.dir");
  for (const char* name : {"", ".", "..", "a/b", "/", "a..b", "a\nb", "latest"})
    EXPECT_THROW(run_name(name, {}), ConfigError) << name;
  EXPECT_EQ(run_name("v1.2", {}), "v1.2");
  EXPECT_EQ(message_of<ConfigError>([] { run_name("latest", {}); }),
            "run.name = \"latest\": this is the link to the newest run\n  fix: choose another name");
}

TEST(RunName, RefusesAJobThatWouldLeadElsewhere) {
  RunFacts facts = some_facts();
  facts.job_id = "../../etc";
  EXPECT_THROW(run_name("run-%jobid", facts), ConfigError);
}

struct Made {
  fs::path path;
  std::string warning;  // of `latest`
};

Made made(const fs::path& dir, const std::string& pattern, const RunFacts& facts) {
  const fs::path path = make_run_folder(dir, pattern, facts).path;
  return {path, point_latest_to(path)};
}

TEST(RunFolder, IsMadeAndIsTheLatest) {
  const TempFolder folder;
  const fs::path dir = folder / "some/runs";
  const Made run = made(dir, "tiny-%layout", some_facts());
  EXPECT_EQ(run.path, dir / "tiny-dp2tp2");
  EXPECT_EQ(run.warning, "");
  EXPECT_EQ(file_contents(run.path / "metrics.jsonl"), "");
  EXPECT_EQ(fs::read_symlink(dir / "latest"), "tiny-dp2tp2");  // relative: dir can be moved as a whole
  EXPECT_EQ(std::distance(fs::directory_iterator(dir), {}), 2);
}

TEST(RunFolder, NeverTakesOneThatHasSomethingInIt) {
  const TempFolder folder;
  fs::create_directory(folder / "x");
  std::ofstream(folder / "x/config.toml") << "old";
  std::ofstream(folder / "x-2") << "a file";
  fs::create_symlink("nowhere", folder / "x-3");
  EXPECT_EQ(made(folder.path(), "x", {}).path, folder / "x-4");
  EXPECT_EQ(made(folder.path(), "x", {}).path, folder / "x-5");
  EXPECT_EQ(fs::read_symlink(folder / "latest"), "x-5");
  EXPECT_EQ(file_contents(folder / "x/config.toml"), "old");
  EXPECT_EQ(file_contents(folder / "x-2"), "a file");
  EXPECT_FALSE(fs::exists(folder / "nowhere"));
}

TEST(RunFolder, TakesAnEmptyOne) {
  const TempFolder folder;
  fs::create_directory(folder / "x");
  EXPECT_EQ(made(folder.path(), "x", {}).path, folder / "x");
}

TEST(RunFolder, OfRunsThatStartTogetherEachHasItsOwn) {
  const TempFolder folder;
  constexpr int kRounds = 60, kRuns = 4;  // often enough for two runs to find the same empty folder
  for (int round = 0; round < kRounds; ++round) {
    const std::string name = "x" + std::to_string(round);
    std::vector<Made> runs(kRuns);
    std::vector<std::thread> starts;
    std::latch together(kRuns);
    for (Made& run : runs)
      starts.emplace_back([&] {
        together.arrive_and_wait();
        run = made(folder.path(), name, {});
      });
    for (std::thread& start : starts) start.join();
    std::set<fs::path> paths;
    for (const Made& run : runs) {
      paths.insert(run.path);
      EXPECT_EQ(run.warning, "");
    }
    EXPECT_EQ(paths.size(), runs.size());
    EXPECT_TRUE(paths.contains(folder.path() / fs::read_symlink(folder / "latest")));
  }
  // All folders and the link; no temporary link is left.
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), kRounds * kRuns + 1);
}

TEST(RunFolder, LeavesALatestAloneThatIsNoLink) {
  const TempFolder folder;
  fs::create_directory(folder / "latest");
  const Made run = made(folder.path(), "x", {});
  EXPECT_EQ(run.path, folder / "x");
  EXPECT_EQ(run.warning, (folder / "latest").string() + " is not a link and stays as it is; this run is in " +
                             (folder / "x").string());
  EXPECT_TRUE(fs::is_directory(fs::symlink_status(folder / "latest")));
  fs::remove(folder / "latest");
  std::ofstream(folder / "latest") << "mine";
  EXPECT_NE(made(folder.path(), "y", {}).warning, "");
  EXPECT_EQ(file_contents(folder / "latest"), "mine");
}

TEST(RunFolder, ReplacesALinkToARunThatIsGone) {
  const TempFolder folder;
  fs::create_symlink("gone", folder / "latest");
  std::ofstream(folder / ".latest-x") << "left by a run that was killed";
  EXPECT_EQ(made(folder.path(), "x", {}).warning, "");
  EXPECT_EQ(fs::read_symlink(folder / "latest"), "x");
  EXPECT_FALSE(fs::exists(fs::symlink_status(folder / ".latest-x")));
}

TEST(RunFolder, SaysWhereItCannotBeMade) {
  const TempFolder folder;
  std::ofstream(folder / "file") << "";
  EXPECT_THROW(made(folder / "file", "x", {}), ConfigError);
  const std::string name(300, 'x');
  EXPECT_EQ(message_of<ConfigError>([&] { made(folder.path(), name, {}); }),
            "run.name = \"" + std::string(40, 'x') +
                "...\" gives a name of 300 bytes: a folder's has at most 240\n  fix: a shorter one");
}

TEST(RunFolder, IsRemovedIfNothingWasDone) {
  const TempFolder folder;
  const auto begun = [&](const char* name) {
    const Made run = made(folder.path(), name, {});
    fs::create_directory(run.path / "ranks");
    std::ofstream(run.path / "ranks/r0000.log") << "error";
    return run.path;
  };
  const fs::path failed = begun("failed");
  remove_if_nothing_was_done({failed});
  EXPECT_FALSE(fs::exists(failed));
  EXPECT_FALSE(fs::exists(fs::symlink_status(folder / "latest")));

  const fs::path stepped = begun("stepped");
  std::ofstream(stepped / "metrics.jsonl") << "{}\n";
  const fs::path saved = begun("saved");
  fs::create_directory(saved / "checkpoints");
  for (const fs::path& run : {stepped, saved}) {
    remove_if_nothing_was_done({run});
    EXPECT_TRUE(fs::exists(run / "ranks/r0000.log")) << run;
  }
  EXPECT_EQ(fs::read_symlink(folder / "latest"), "saved");
  fs::create_directory(folder / "mine");
  remove_if_nothing_was_done({folder / "mine"});
  EXPECT_TRUE(fs::exists(folder / "mine")) << "not the folder of a run";

  // The link goes back to a run that has done something, and a folder that was there before stays.
  const fs::path again = begun("again");
  EXPECT_EQ(fs::read_symlink(folder / "latest"), "again");
  remove_if_nothing_was_done({again});
  EXPECT_EQ(fs::read_symlink(folder / "latest"), "stepped");
  const RunFolder given = make_run_folder(folder.path(), "mine", {});
  EXPECT_EQ(given.path, folder / "mine");
  EXPECT_FALSE(given.is_new);
  std::ofstream(given.path / "config.toml") << "";
  remove_if_nothing_was_done(given);
  EXPECT_TRUE(fs::is_empty(folder / "mine"));
}

}  // namespace
}  // namespace trireme::metrics
