#pragma once
// Saves checkpoints during training: a copy of the state is taken between two updates and written in the background.
#include <deque>
#include <exception>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/checkpoint/commit.hpp"
#include "trireme/checkpoint/shard_writer.hpp"
#include "trireme/comm/mesh.hpp"
#include "trireme/train/nanotron_files.hpp"

namespace trireme {

enum class CheckpointFormat { trireme, nanotron };

struct SaverOptions {
  std::filesystem::path folder;  // "checkpoints" of the run
  std::int64_t keep = 2;         // newest checkpoints; 0: all
  std::size_t buffer_bytes = std::size_t{1}
                             << 31;       // the most memory of the copy; a larger state makes the next update wait
  checkpoint::SmallFiles small_files{};   // of every checkpoint; only on rank 0
  std::function<void()> before_commit{};  // on rank 0: throws if this run may not write to the folder any more
  files::Fs* fs = nullptr;                // null: the operating system's
  CheckpointFormat format = CheckpointFormat::trireme;
  std::function<LrState(std::int64_t step)> lr_state{};  // only for nanotron's layout
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
//                     and write them
//   before_update()   the copy of every rank must be complete before the weights change
//   is_writing()      goes into the step's agreement; when no rank is writing any more, all call settle()
//   settle()          rank 0 gets what each file contains, and commits in the background
// While the files are written no rank waits for another one, and nothing is sent. The save before must be over first:
// start() calls finish() for it. In nanotron's layout start() gathers the weights and writes them.
class CheckpointSaver {
 public:
  /// Collective.
  CheckpointSaver(SaverOptions options, Mesh& mesh);
  /// A save in progress is given up.
  ~CheckpointSaver();

  /// Collective. `manifest`: everything but files and tensors; read on rank 0. `random`: this rank's generators.
  /// A save in progress is waited for first. `export_weights`: makes the folder that it is given, whose files are then
  /// put beside those of the checkpoint; called when all of these are written, on all ranks, and only rank 0 may fail.
  /// Then the checkpoint is committed without them, and finish() throws CheckpointError.
  void start(Zero& zero, checkpoint::Manifest manifest, const std::vector<std::uint8_t>& random,
             std::function<void(const std::filesystem::path&)> export_weights = {});

  /// Collective, before the state changes.
  void before_update();

  /// A save was started and not settled: the same on all ranks.
  bool in_progress() const { return save_ != nullptr; }
  /// Whether this rank's file is not yet on disk.
  bool is_writing() const;

  /// Collective, when no rank is writing.
  void settle();
  /// Collective: waits until the save in progress, if any, is over.
  void finish();

  /// Rank 0: the oldest save that was committed, or has failed, and was not told yet.
  std::optional<SaveOutcome> take_outcome();
  /// Time that training has waited for saves on this rank, since the last call.
  double take_blocked_seconds();

 private:
  struct Save;

  SaveOutcome commit(const checkpoint::SaveTarget& target, checkpoint::Manifest manifest,
                     const std::vector<std::string>& results, double blocked_seconds);
  void fail(const checkpoint::SaveTarget& target, const std::string& why, bool no_memory = false);
  void run_export(const checkpoint::SaveTarget& target,
                  const std::function<void(const std::filesystem::path&)>& export_weights);
  [[noreturn]] void throw_not_exported();
  void wait_for_commit();
  void add_blocked(double seconds);

  const SaverOptions options_;
  Mesh& mesh_;
  files::Fs& fs_;
  checkpoint::BlockPool pool_;
  const std::string nonce_;  // of this run, the same on all ranks
  std::int64_t saves_ = 0;
  std::unique_ptr<Save> save_;           // until it is settled
  std::future<SaveOutcome> committing_;  // on rank 0
  std::deque<SaveOutcome> outcomes_;     // that nobody has asked for yet
  std::exception_ptr not_exported_;      // why; on rank 0
  double blocked_seconds_ = 0, blocked_of_save_ = 0;
};

}  // namespace trireme
