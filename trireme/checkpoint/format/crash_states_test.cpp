// Every state that a power cut can leave of a save and a prune: Note [Crash states].
#include "trireme/testing/crash_states.hpp"

#include <cstdlib>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/checkpoint/format/step_folder.hpp"
#include "trireme/testing/checkpoint_helpers.hpp"

namespace trireme::checkpoint {
namespace {

/// step-10 and step-20 are there; step-30 is saved, then step-10 is pruned.
struct RecordedSave {
  TempFolder folder{memory_folder()};
  CrashStates states;
  std::vector<FsOp> log{};
  std::size_t committed = 0;                     // operations when commit() returned
  std::map<std::int64_t, std::string> wanted{};  // all that the checkpoint of a step holds

  RecordedSave() : states(prepared(folder.path())) {
    RecordingFs fs;
    save_example(fs, folder.path(), {.step = 30, .number = 30});
    committed = fs.log.size();
    for (const std::int64_t step : {10, 20, 30})
      wanted[step] = whole_checkpoint(Reader(folder.path() / step_name(step)));
    EXPECT_EQ(prune(fs, folder.path(), 2).size(), 1u);
    log = fs.log;
  }

  static const std::filesystem::path& prepared(const std::filesystem::path& path) {
    for (const std::int64_t step : {10, 20})
      save_example(files::real_fs(), path, {.step = step, .number = static_cast<std::uint64_t>(step)});
    return path;
  }

  bool is_of(const FsOp& op, FsKind kind, const std::string& name) const {
    return op.kind == kind && op.path.filename().string().starts_with(name);
  }
};

/// Finds out what is wrong with the checkpoints after a crash. A folder is read once for all states in which it is the
/// same.
class CrashJudge {
 public:
  explicit CrashJudge(const RecordedSave& save) : save_(save) {}

  /// `folder` holds `state`. "" if nothing is wrong.
  std::string fault(const std::filesystem::path& folder, const DiskState& state, bool committed) {
    const std::vector<FoundCheckpoint> found = checkpoints_in(folder);
    if (found.empty()) return "no checkpoint is left";
    if (found.front().step != 30 && (committed || found.front().step != 20))
      return text("the newest is step-", found.front().step);
    for (const FoundCheckpoint& each : found) {  // more than is needed: there is no step-N that is not whole
      const std::string tree = state.tree(state.folders.at(0).at(step_name(each.step)));
      const auto [known, is_new] = known_.try_emplace(step_name(each.step) + tree);
      if (is_new) known->second = checkpoint_fault(each);
      if (!known->second.empty()) return known->second;
    }
    if (const std::string latest = file_contents(folder / "latest"); latest != "step-20\n" && latest != "step-30\n")
      return "latest is '" + latest + "'";
    return "";
  }

 private:
  std::string checkpoint_fault(const FoundCheckpoint& found) const {
    try {
      const bool same = whole_checkpoint(Reader(found.path)) == save_.wanted.at(found.step);
      return same ? "" : text("step-", found.step, " is not what was saved");
    } catch (const Error& error) {
      return error.what();
    }
  }

  const RecordedSave& save_;
  std::map<std::string, std::string> known_;
};

/// The next start cleans up, saves and prunes.
std::string recovery_fault(const std::filesystem::path& folder) {
  remove_unfinished(files::real_fs(), folder);
  save_example(files::real_fs(), folder, {.step = 40, .number = 40});
  prune(files::real_fs(), folder, 2);
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (is_unfinished_name(entry.path().filename().string())) return entry.path().string() + " is left";
  const auto found = checkpoints_in(folder);
  if (found.size() != 2 || found.front().step != 40) return text(found.size(), " checkpoints after the next save");
  return why_not_valid(found.front().path) + why_not_valid(found.back().path);
}

struct Explored {
  std::size_t states = 0, recovered = 0;
  std::string fault{};  // the first
};

Explored explore(RecordedSave& save, std::size_t number, std::uint64_t seed) {
  save.states.record(save.log);
  const TempFolder place(memory_folder());
  const std::filesystem::path disk = place / "disk";
  std::mt19937_64 random(seed);
  std::set<std::string> seen;
  CrashJudge judge(save);
  Explored out;
  // Most moments have few states: one that brings nothing new many times in a row has no more.
  constexpr int kExhausted = 100;
  std::vector<int> in_vain(save.states.operations() + 1, 0);
  for (std::size_t at = 0; out.states < number && out.fault.empty(); ++at) {
    const std::size_t operations = at % in_vain.size();
    if (operations == 0 && std::ranges::all_of(in_vain, [](int times) { return times >= kExhausted; })) break;
    if (in_vain[operations] >= kExhausted) continue;
    const bool committed = operations >= save.committed;
    const DiskState state = save.states.after(operations, random);
    ++in_vain[operations];
    if (!seen.insert(text(committed, state.tree())).second) continue;
    in_vain[operations] = 0;
    ++out.states;
    std::filesystem::remove_all(disk);
    std::filesystem::create_directory(disk);
    state.materialise(disk);
    out.fault = judge.fault(disk, state, committed);
    if (out.fault.empty() && out.states % 16 == 0) {
      out.fault = recovery_fault(disk);
      ++out.recovered;
    }
    if (!out.fault.empty()) out.fault = text("after ", operations, " operations: ", out.fault, "\n  ", state.tree());
  }
  return out;
}

std::size_t wanted_states() {
  const char* number = std::getenv("TRIREME_CRASH_STATES");  // make campaign
  return number == nullptr ? 2'000 : std::stoul(number);
}

TEST(CrashStates, ASaveAndAPruneSurviveEveryCrash) {
  RecordedSave save;
  EXPECT_GT(save.log.size(), 30u);
  const Explored found = explore(save, wanted_states(), 1);
  EXPECT_EQ(found.fault, "");
  EXPECT_EQ(found.states, wanted_states());
  RecordProperty("states", static_cast<int>(found.states));
}

// The same with a protocol that has a fault, to show that each of its steps is needed, and that the test would see it.

TEST(CrashStates, FindACommitWithoutSyncOfTheFolder) {
  RecordedSave save;
  std::erase_if(save.log,
                [&](const FsOp& op) { return op.kind == FsKind::sync_folder && op.path == save.folder.path(); });
  save.committed -= 1;
  EXPECT_THAT(explore(save, 2'000, 1).fault, ::testing::HasSubstr("the newest is step-20"));
}

TEST(CrashStates, FindACommitWithoutSyncOfTheTemporaryFolder) {
  RecordedSave save;
  std::erase_if(save.log, [&](const FsOp& op) { return save.is_of(op, FsKind::sync_folder, "step-30.tmp"); });
  save.committed -= 1;
  EXPECT_THAT(explore(save, 2'000, 1).fault, ::testing::HasSubstr("/step-30"));
}

TEST(CrashStates, FindARenameBeforeTheSyncOfAFile) {
  for (const char* name : {kManifestName, "rank-00001.safetensors", "rank-00001.json", "config.json"}) {
    RecordedSave save;
    const auto sync =
        std::ranges::find_if(save.log, [&](const FsOp& op) { return save.is_of(op, FsKind::sync, name); });
    const auto rename =
        std::ranges::find_if(save.log, [&](const FsOp& op) { return save.is_of(op, FsKind::rename, "step-30"); });
    ASSERT_TRUE(sync < rename && rename != save.log.end());
    std::rotate(sync, sync + 1, rename + 1);
    EXPECT_THAT(explore(save, 2'000, 1).fault, ::testing::HasSubstr("/step-30")) << name;
  }
}

TEST(CrashStates, FindAPruneThatRemovesTooEarly) {
  RecordedSave save;
  const auto rename =
      std::ranges::find_if(save.log, [&](const FsOp& op) { return save.is_of(op, FsKind::rename, "step-10"); });
  ASSERT_NE(rename, save.log.end());
  save.log.erase(rename + 1);  // the sync of the folder
  EXPECT_THAT(explore(save, 2'000, 1).fault, ::testing::HasSubstr("/step-10"));
}

}  // namespace
}  // namespace trireme::checkpoint
