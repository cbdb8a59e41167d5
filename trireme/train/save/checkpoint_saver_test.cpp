#include "trireme/train/save/checkpoint_saver.hpp"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>

#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/format/reader.hpp"
#include "trireme/testing/recording_fs.hpp"
#include "trireme/testing/temp_folder.hpp"
#include "trireme/testing/test_helpers.hpp"
#include "trireme/testing/zero_helpers.hpp"
#include "trireme/train/save/failed_saves.hpp"
#include "trireme/train/save/load_state.hpp"

namespace trireme {
namespace {

using testing::HasSubstr;

/// A model on a mesh whose steps change everything.
struct SavedNet {
  explicit SavedNet(Mesh& mesh, int stage = 1, int layers = 3, double bucket_mb = 0.003)
      : net(std::make_shared<test::UnitNet>(layers, at::kFloat)),
        zero(params_of(*net), net->units(), mesh, {.stage = stage, .bucket_mb = bucket_mb, .persistence_threshold = 10},
             {}) {
    if (stage >= 3) net->units(&zero.chunk());
  }

  void step(std::int64_t number) {
    zero.chunk().begin_microbatch(true);
    net->loss(test::rows(number)).backward();
    zero.chunk().end_microbatch();
    zero.finish_gradients();
    std::move(zero.update({.lr = 0.1})).settle();
    zero.finish_gathers();
  }

  std::shared_ptr<test::UnitNet> net;
  Zero zero;
};

checkpoint::Manifest after_step(std::int64_t step) {
  checkpoint::Manifest manifest;
  manifest.training.step = manifest.training.optimizer_steps = step;
  return manifest;
}

std::vector<at::Tensor> copies_of(const Zero& zero) {
  std::vector<at::Tensor> out;
  for (const StateSlice& slice : slices_to_load(zero)) out.push_back(slice.values.clone());
  return out;
}

class CheckpointSaverTest : public testing::TestWithParam<CheckpointFormat> {
 protected:
  static bool is_nanotron() { return GetParam() == CheckpointFormat::nanotron; }
  static SaverOptions options(const TempFolder& folder) {
    return {.folder = folder.path() / "checkpoints",
            .buffer_bytes = 1 << 23,
            .format = GetParam(),
            .lr_state = [](std::int64_t step) { return LrState{.last_step = step}; }};
  }
};
INSTANTIATE_TEST_SUITE_P(, CheckpointSaverTest, testing::Values(CheckpointFormat::trireme, CheckpointFormat::nanotron),
                         [](const auto& format) {
                           return format.param == CheckpointFormat::nanotron ? "Nanotron" : "Trireme";
                         });

/// The values at the time of start(), although training goes on while they are written.
TEST_P(CheckpointSaverTest, SavesTheStateOfItsStep) {
  const TempFolder folder;
  run_ranks(2, [&](World& world) {
    Mesh mesh(Grid::dense({.dp = 2}), world);
    SavedNet run(mesh);
    SaverOptions small = options(folder);
    small.keep = 0;
    small.buffer_bytes = 1;
    CheckpointSaver saver(small, mesh);
    std::vector<std::vector<at::Tensor>> expected;
    for (std::int64_t step = 1; step <= 3; ++step) {
      run.step(step);
      expected.push_back(copies_of(run.zero));
      saver.start(run.zero, after_step(step), {{checkpoint::kRandom, {1, 2, 3}}});
      EXPECT_TRUE(saver.in_progress());
      saver.before_update();
    }
    saver.finish();
    EXPECT_FALSE(saver.in_progress());
    for (std::int64_t step = 1; step <= 3; ++step) {
      SavedNet other(mesh, 3);  // on another stage
      const checkpoint::Reader reader(folder.path() / text("checkpoints/step-", step));
      load_state(reader, other.zero);
      state_is_loaded(other.zero, step);
      EXPECT_EQ(other.zero.optimizer().steps(), step);
      SavedNet same(mesh);
      load_state(reader, same.zero);
      const std::vector<at::Tensor> loaded = copies_of(same.zero),
                                    &wanted = expected[static_cast<std::size_t>(step - 1)];
      ASSERT_EQ(loaded.size(), wanted.size());
      for (std::size_t i = 0; i < loaded.size(); ++i) EXPECT_TRUE(at::equal(loaded[i], wanted[i])) << "step " << step;
    }
  });
}

/// A hint for people, and folders above the checkpoints that were there before.
bool is_optional(const FsOp& op, const std::filesystem::path& checkpoints) {
  return op.path.filename().string().find("latest") != std::string::npos ||
         (op.kind == FsKind::sync_folder && !op.path.string().starts_with(checkpoints.string()));
}

/// Saves three times on two ranks; the second time, `fails` happens on `bad_rank`: training goes on, the checkpoint
/// before stays, the reason is reported, nothing half written remains, and the next save succeeds. What failed, if a
/// save has so many operations.
std::optional<FsOp> fail_a_save(const SaverOptions& good, int bad_rank, FailingCall fails) {
  std::optional<FsOp> failed;
  run_ranks(2, [&](World& world) {
    Mesh mesh(Grid::dense({.dp = 2}), world);
    SavedNet run(mesh);
    run.step(1);
    FailingFs failing(fails);
    SaverOptions bad = good;
    if (mesh.rank() == bad_rank) bad.fs = &failing;
    {
      CheckpointSaver saver(good, mesh);
      saver.start(run.zero, after_step(1), {});
      saver.finish();
    }
    CheckpointSaver saver(bad, mesh);
    saver.start(run.zero, after_step(2), {});
    saver.before_update();
    run.step(2);
    saver.finish();
    if (mesh.rank() == bad_rank && failing.has_failed()) failed = failing.failed();
    mesh.world_group().barrier().wait();
    if (mesh.rank() == 0) {
      const std::optional<SaveOutcome> outcome = saver.take_outcome();
      ASSERT_TRUE(outcome.has_value());
      if (!outcome->failure.empty()) {
        EXPECT_TRUE(failed.has_value());
        EXPECT_THAT(outcome->failure, HasSubstr(errno_text(fails.error)));
        EXPECT_EQ(checkpoint::checkpoints_in(good.folder).size(), 1u);
        EXPECT_EQ(checkpoint::why_not_valid(good.folder / "step-1"), "");
      } else {
        EXPECT_TRUE(!failed || is_optional(*failed, good.folder)) << failed->path;
        EXPECT_EQ(checkpoint::why_not_valid(good.folder / "step-2"), "");
      }
    }
    mesh.world_group().barrier().wait();
    CheckpointSaver again(good, mesh);
    again.start(run.zero, after_step(3), {});
    again.finish();
    if (mesh.rank() == 0) {
      EXPECT_EQ(again.take_outcome()->failure, "");
      EXPECT_EQ(checkpoint::why_not_valid(good.folder / "step-3"), "");
    }
  });
  return failed;
}

/// Each file operation of a save fails in turn, on either rank; in nanotron's layout, with its many files, every fifth
/// of a kind. Which rank makes the folders depends on which comes first: the other operations are counted.
TEST_P(CheckpointSaverTest, AFailedSaveCostsNothing) {
  const int step = is_nanotron() ? 5 : 1;
  const auto failures = [&](int rank, FsKind kind) {
    int count = 0;
    for (;; ++count) {
      SCOPED_TRACE(text("rank ", rank, ", kind ", static_cast<int>(kind), ", number ", count * step));
      const TempFolder folder(memory_folder());
      const FailingCall fails{.number = count * step, .error = count % 2 == 0 ? ENOSPC : EIO, .kind = kind};
      if (!fail_a_save(options(folder), rank, fails)) return count;
    }
  };
  // Its own file and its part of the manifest; rank 0 also writes the manifest and `latest`, and renames both.
  for (const FsKind kind : {FsKind::create, FsKind::write, FsKind::sync, FsKind::close}) {
    EXPECT_EQ(failures(0, kind), is_nanotron() ? 3 : 4);
    EXPECT_EQ(failures(1, kind), is_nanotron() ? 2 : 2);
  }
  EXPECT_EQ(failures(0, FsKind::rename), is_nanotron() ? 1 : 3);
  EXPECT_EQ(failures(1, FsKind::rename), 1);
  for (const int rank : {0, 1}) {
    EXPECT_EQ(failures(rank, FsKind::truncate), is_nanotron() ? 2 : 1);
    failures(rank, FsKind::make_folder);
  }
  EXPECT_GE(failures(0, FsKind::sync_folder), 2);
  failures(1, FsKind::sync_folder);
}

/// Does nothing until it is released.
class BlockedFs final : public ForwardingFs {
 public:
  void release() {
    released_ = true;
    released_.notify_all();
  }

 private:
  int done(FsOp, const std::function<int()>& forward) override {
    released_.wait(false);
    return forward();
  }
  std::atomic<bool> released_ = false;
};

/// The state is larger than the memory for its copy, and nothing can be written: the update must wait, or a part of
/// what is saved would be of the next step.
TEST(CheckpointSaver, TheNextUpdateWaitsForTheCopy) {
  const TempFolder folder(memory_folder());
  constexpr int kLayers = 600;  // 5.2 MB of weights and states on each rank
  BlockedFs blocked;
  std::atomic<bool> released = false;
  std::thread later;
  run_ranks(2, [&](World& world) {
    Mesh mesh(Grid::dense({.dp = 2}), world);
    SavedNet run(mesh, 1, kLayers, 25);
    CheckpointSaver saver({.folder = folder / "checkpoints", .buffer_bytes = 1, .fs = &blocked}, mesh);
    saver.start(run.zero, after_step(1), {});
    if (mesh.rank() == 0)
      later = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        released = true;
        blocked.release();
      });
    saver.before_update();
    EXPECT_TRUE(released) << "rank " << mesh.rank();
    saver.finish();
  });
  later.join();
}

/// Longer than a collective may take.
class SlowFs final : public ForwardingFs {
 private:
  int done(FsOp op, const std::function<int()>& forward) override {
    if (op.kind == FsKind::sync && !was_slow_.exchange(true)) std::this_thread::sleep_for(std::chrono::seconds(2));
    return forward();
  }
  std::atomic<bool> was_slow_ = false;
};

TEST_P(CheckpointSaverTest, ASlowDiskIsNoHang) {
  const TempFolder folder(memory_folder());
  run_ranks(2,
            [&](World& world) {
              Mesh mesh(Grid::dense({.dp = 2}), world);
              SavedNet run(mesh);
              run.step(1);
              SlowFs slow;
              SaverOptions with_slow = options(folder);
              if (mesh.rank() == 1) with_slow.fs = &slow;
              CheckpointSaver saver(with_slow, mesh);
              saver.start(run.zero, after_step(1), {});
              saver.before_update();
              run.step(2);
              saver.finish();
              const std::string failure = mesh.rank() == 0 ? saver.take_outcome()->failure : "";
              EXPECT_EQ(failure, "");
            },
            {.timeout_s = 1});
}

/// When all files are written, nothing more is needed from the steps: a rank that dies in the next one costs no
/// checkpoint.
TEST_P(CheckpointSaverTest, ACompleteSaveIsCommittedWithoutAnotherStep) {
  const TempFolder folder(memory_folder());
  const std::filesystem::path saved = folder / "checkpoints/step-1";
  run_ranks(2, [&](World& world) {
    Mesh mesh(Grid::dense({.dp = 2}), world);
    SavedNet run(mesh);
    run.step(1);
    CheckpointSaver saver(options(folder), mesh);
    saver.start(run.zero, after_step(1), {});
    for (int i = 0; i < 500 && !checkpoint::why_not_valid(saved).empty(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(checkpoint::why_not_valid(saved), "") << "rank " << mesh.rank();
    EXPECT_TRUE(saver.in_progress());
  });
}

/// A saver that is destroyed, as when a step fails, finishes a save whose files are complete.
TEST_P(CheckpointSaverTest, AFailureCostsNoCompleteSave) {
  const TempFolder folder(memory_folder());
  run_ranks(2, [&](World& world) {
    Mesh mesh(Grid::dense({.dp = 2}), world);
    SavedNet run(mesh);
    run.step(1);
    CheckpointSaver saver(options(folder), mesh);
    saver.start(run.zero, after_step(1), {});
    while (saver.is_writing()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    mesh.world_group().barrier().wait();
  });
  EXPECT_EQ(checkpoint::why_not_valid(folder / "checkpoints/step-1"), "");
}

/// A saver that is destroyed for another reason while the storage does not answer is gone after the same time.
TEST(CheckpointSaver, AnotherFailureDoesNotWaitForSuchStorage) {
  const TempFolder folder(memory_folder());
  BlockedFs blocked;
  const auto begin = std::chrono::steady_clock::now();
  run_ranks(2, [&](World& world) {
    Mesh mesh(Grid::dense({.dp = 2}), world);
    SavedNet run(mesh);
    CheckpointSaver saver(
        {.folder = folder / "checkpoints", .fs = &blocked, .stall = {.warning_s = 60, .timeout_s = 0.5}}, mesh);
    saver.start(run.zero, after_step(1), {});
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  blocked.release();  // the threads that were left behind end
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
}

/// The rank whose storage does not answer says so, and ends: it does not wait for ever.
TEST(CheckpointSaver, StorageThatDoesNotAnswerIsAnError) {
  const TempFolder folder(memory_folder());
  BlockedFs blocked;
  std::string error;
  testing::internal::CaptureStderr();
  try {
    run_ranks(2, [&](World& world) {
      Mesh mesh(Grid::dense({.dp = 2}), world);
      SavedNet run(mesh);
      CheckpointSaver saver({.folder = folder / "checkpoints",
                             .fs = mesh.rank() == 1 ? &blocked : nullptr,
                             .stall = {.warning_s = 0.3, .timeout_s = 1}},
                            mesh);
      saver.start(run.zero, after_step(1), {});
      saver.finish();
    });
  } catch (const StorageError& e) {
    error = e.what();
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("warning: rank 1: " + (folder / "checkpoints/step-1.tmp-").string()));
  EXPECT_THAT(error, testing::AllOf(HasSubstr("rank 1: "), HasSubstr("the storage does not respond"),
                                    HasSubstr("checkpoint.stall_timeout_s")));
  blocked.release();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the threads that were left behind use it
}

TEST(FailedSaves, TooManyInARowEndTheRun) {
  FailedSaves saves;
  saves.add(10, "disk full", 3);
  saves.add(20, "disk full", 3);
  saves.add(30, "", 3);
  saves.add(40, "disk full", 3);
  saves.add(50, "disk full", 3);
  EXPECT_THAT(message_of<StorageError>([&] { saves.add(60, "no route to host", 3); }),
              testing::AllOf(HasSubstr("the last 3 checkpoints were not saved, from step 40 on"),
                             HasSubstr("no route to host"), HasSubstr("checkpoint.max_failures = 3")));
  FailedSaves unlimited;
  for (int i = 0; i < 100; ++i) unlimited.add(i, "disk full", 0);
}

}  // namespace
}  // namespace trireme
