#pragma once
// Saves checkpoints during training: a copy of the state is taken between two updates and written in the background.
#include <deque>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/checkpoint/format/commit.hpp"
#include "trireme/checkpoint/format/shard_writer.hpp"
#include "trireme/comm/mesh.hpp"
#include "trireme/parallel/zero/zero.hpp"
#include "trireme/train/save/nanotron_files.hpp"
#include "trireme/train/save/stall_watch.hpp"

namespace trireme {

enum class CheckpointFormat { trireme, nanotron };

struct SaverOptions {
  std::filesystem::path folder;  // "checkpoints" of the run
  std::int64_t keep = 2;         // newest checkpoints; 0: all
  std::int64_t keep_every = 0;   // also those of steps that this divides; 0: none
  std::size_t buffer_bytes = std::size_t{1}
                             << 31;       // the most memory of the copy; a larger state makes the next update wait
  checkpoint::SmallFiles small_files{};   // of every checkpoint; only on rank 0
  std::function<void()> before_commit{};  // on rank 0: throws if this run may not write to the folder any more
  files::Fs* fs = nullptr;                // null: the operating system's
  CheckpointFormat format = CheckpointFormat::trireme;
  std::function<LrState(std::int64_t step)> lr_state{};  // only for nanotron's layout
  StallLimits stall{};
  // Called instead of throwing StorageError, and need not return: for a program whose way out would use that storage.
  std::function<void(const std::string& why)> on_stall{};
};

/// A save that is over.
struct SaveOutcome {
  std::int64_t step = 0;
  std::filesystem::path path{};
  std::uint64_t bytes = 0;
  double blocked_seconds = 0;  // of training, on this rank
  std::string failure{};       // not empty: it was not saved
  bool no_memory = false;      // that was why
  std::string warning{};       // older checkpoints could not be removed
};

// Note [A save in the background]
//   start()           a thread of each rank begins to copy its slices into blocks of memory, and another one to hash
//                     and write them; when they are on disk, it writes its part of the manifest. A thread of rank 0
//                     waits for the parts of all ranks, and then commits: without a word from the steps, so that a
//                     failure in the next step does not cost a checkpoint whose files are complete
//   before_update()   the copy of every rank must be complete before the weights change
//   is_writing()      goes into the step's agreement; when no rank is writing any more, all call settle()
//   settle()          rank 0 learns whether a rank could not write its files
// While the files are written no rank waits for another one, and nothing is sent. The save before must be over first:
// start() calls finish() for it. In nanotron's layout start() gathers the weights and writes them.
//
// Note [Storage that does not answer]
// A system call that never returns cannot be cancelled. Each file operation that ends is progress; without any for
// stall.timeout_s the rank throws StorageError, and leaves its threads, and what they use, behind.
class CheckpointSaver {
 public:
  /// Collective.
  CheckpointSaver(SaverOptions options, Mesh& mesh);
  /// A save in progress is given up, unless it is being committed.
  ~CheckpointSaver();

  /// Collective. `manifest`: everything but files and tensors; read on rank 0. `of_rank`: what this rank has.
  /// A save in progress is waited for first.
  void start(Zero& zero, checkpoint::Manifest manifest, const RankState& of_rank);

  /// Collective, before the state changes.
  void before_update();

  /// A save was started and not settled: the same on all ranks.
  bool in_progress() const { return save_ != nullptr; }
  /// Whether this rank's files are not yet on disk. Throws StorageError if the storage does not answer.
  bool is_writing();

  /// Collective, when no rank is writing.
  void settle();
  /// Collective: waits until the save in progress, if any, is over.
  void finish();

  /// Rank 0: the oldest save that was committed, or has failed, and was not told yet.
  std::optional<SaveOutcome> take_outcome();
  /// Time that training has waited for saves on this rank, since the last call.
  double take_blocked_seconds();

 private:
  struct Shared;
  struct Save;
  struct Verdict;

  static SaveOutcome commit_when_written(const std::shared_ptr<Shared>& shared, const checkpoint::SaveTarget& target,
                                         checkpoint::Manifest manifest, int world,
                                         const std::shared_ptr<Verdict>& verdict);
  static SaveOutcome commit(Shared& shared, const checkpoint::SaveTarget& target, checkpoint::Manifest manifest,
                            int world);
  std::string look_for_stall();
  template <class Future>
  bool ends(const Future& work) const;
  void wait_for_commit();
  void add_blocked(double seconds);

  Mesh& mesh_;
  const std::shared_ptr<Shared> shared_;
  const StallLimits stall_limits_;
  const std::string nonce_;  // of this run, the same on all ranks
  std::int64_t saves_ = 0;
  std::shared_ptr<Save> save_;           // until it is settled
  std::future<SaveOutcome> committing_;  // on rank 0
  std::shared_ptr<Verdict> verdict_;     // of the same save
  std::optional<StallWatch> stall_;
  std::filesystem::path stalled_path_;  // of the save that stall_ watches
  bool is_stalled_ = false;
  std::deque<SaveOutcome> outcomes_;  // that nobody has asked for yet
  double blocked_seconds_ = 0, blocked_of_save_ = 0;
};

}  // namespace trireme
