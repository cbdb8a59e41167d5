#include "trireme/train/run/resume.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <future>
#include <iostream>
#include <memory>
#include <set>
#include <sstream>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/checkpoint/format/reader.hpp"
#include "trireme/comm/group_text.hpp"
#include "trireme/comm/time_limit.hpp"
#include "trireme/train/save/load_state.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

/// Reads of a checkpoint by all ranks, and an eye on the storage. A read that never returns cannot be cancelled, and
/// the thread that is in it uses what is about to be destroyed: then the process ends here.
class WatchedReads {
 public:
  WatchedReads(Group& control, fs::path path, const StallLimits& limits)
      : control_(control), path_(std::move(path)), limits_(limits) {}

  const checkpoint::ReadProgress& progress() const { return progress_; }
  bool is_security() const { return is_security_; }

  /// Collective: what is wrong with a checkpoint by the first rank that found something, or "". Ranks read different
  /// amounts, from storage of different speed. StorageError on all ranks if one of them could not read it: then nothing
  /// is known to be wrong, and an older checkpoint must not take its place.
  std::string fault_of(const std::function<void()>& action) {
    std::string unread;
    std::future<std::string> work = std::async(std::launch::async, [&]() -> std::string {
      try {
        action();
      } catch (const CheckpointError& e) {
        return e.what();
      } catch (const SecurityError& e) {  // a symlink, perhaps: the checkpoint before it may be good
        is_security_ = true;
        return e.what();
      } catch (const StorageError& e) {
        unread = e.what();
      }
      return "";
    });
    StallWatch watch(limits_);
    wait_for_all_ranks(control_, work, [&] { return look(watch); });
    const std::string fault = work.get(), unreadable = first_failure(control_, unread);
    require<StorageError>(unreadable.empty(), unreadable);
    return first_failure(control_, fault);
  }

 private:
  std::string look(StallWatch& watch) const {
    const StallWatch::State state = watch.look(*progress_);
    if (state == StallWatch::State::fine) return "";
    const std::string what =
        text(path_.string(), ": the storage does not respond: nothing was read for ", human_seconds(watch.seconds()));
    if (state == StallWatch::State::warn)
      return text(what, "\n  the start ends after ", human_seconds(limits_.timeout_s),
                  " without progress (checkpoint.stall_timeout_s)");
    std::cerr << text("error: rank ", control_.rank(), ": ", what,
                      "\n  fix: check the disk or the network that the folder is on; ",
                      "checkpoint.stall_timeout_s is the limit\n")
              << std::flush;
    std::_Exit(static_cast<int>(ExitCode::storage));
  }

  Group& control_;
  const fs::path path_;
  const StallLimits limits_;
  const checkpoint::ReadProgress progress_ = std::make_shared<std::atomic<std::uint64_t>>(0);
  bool is_security_ = false;
};

std::vector<std::uint8_t> of_rank(const checkpoint::Reader& reader, const char* kind, int rank, int world) {
  const auto then = reader.manifest().layout.find("world");
  const checkpoint::StoredTensor* stored = checkpoint::find(reader.manifest(), text("rank-", rank), kind);
  if (stored == nullptr || then == reader.manifest().layout.end() || then->second != world) return {};
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(numel(stored->shape)));
  reader.read(*stored, {{0, stored->shape[0]}}, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

}  // namespace

std::vector<fs::path> checkpoints_to_resume(const OwnFolder* own, const std::string& resume, World& world) {
  std::string lines;
  if (own != nullptr)
    for (const fs::path& path : own->to_resume_from(resume)) lines += path.string() + "\n";
  // Rank 0 may have waited for the lock of the folder, and for the disk.
  const TimeLimit limit(world, std::max(world.options().init_timeout_s, world.options().timeout_s));
  std::istringstream all(broadcast_text(world.control(), lines));
  std::vector<fs::path> out;
  for (std::string line; std::getline(all, line);) out.emplace_back(line);
  return out;
}

namespace {

std::unique_ptr<checkpoint::Reader> opened_by_rank(const fs::path& path, const std::string& manifest, const Zero& zero,
                                                   int rank, const checkpoint::ReadProgress& progress) {
  std::set<std::pair<std::string, std::string>> wanted{{text("rank-", rank), checkpoint::kRandom},
                                                       {text("rank-", rank), checkpoint::kFp8History}};
  for (const StateSlice& slice : slices_to_read(zero)) wanted.emplace(slice.name, slice.kind);
  return std::make_unique<checkpoint::Reader>(
      path, checkpoint::parse_manifest(manifest, path.string()),
      [&](const std::string& name, const std::string& kind) { return wanted.contains({name, kind}); }, progress);
}

}  // namespace

Resumed resume(Zero& zero, Mesh& mesh, const ResumeRequest& request, std::vector<std::string>& warnings) {
  // They have built their models, which takes some longer than others.
  const TimeLimit limit(mesh.world(),
                        std::max(mesh.world().options().init_timeout_s, mesh.world().options().timeout_s));
  Group& control = mesh.world().control();
  std::string failures;
  std::vector<fs::path> failed;
  bool is_security = false;
  for (const fs::path& path : request.candidates) {
    // One rank opens all files. The others get the manifest from it, and open only what they read.
    std::unique_ptr<checkpoint::Reader> reader;
    std::string manifest;
    WatchedReads reads(control, path, request.stall);
    std::string failure = reads.fault_of([&] {
      if (mesh.rank() != 0) return;
      reader = std::make_unique<checkpoint::Reader>(path, reads.progress());
      manifest = to_json(reader->manifest());
    });
    if (failure.empty()) {
      manifest = broadcast_text(control, manifest);
      failure = reads.fault_of([&] {
        if (!reader) reader = opened_by_rank(path, manifest, zero, mesh.rank(), reads.progress());
      });
    }
    if (failure.empty()) {
      reader->read_each_once();
      Resumed out{.path = path, .manifest = reader->manifest()};
      out.changes = changes_since(out.manifest, request.config, request.data, request.accepted);
      require_nothing_refused(path, out.changes);
      failure = reads.fault_of([&] {
        load_state(*reader, zero, {.states = !out.changes.new_optimizer, .one_replica_reads = true});
        out.random = of_rank(*reader, checkpoint::kRandom, mesh.rank(), mesh.world().size());
        out.fp8_history = of_rank(*reader, checkpoint::kFp8History, mesh.rank(), mesh.world().size());
      });
      if (failure.empty()) {
        out.damaged = std::move(failed);
        spread_to_replicas(zero);
        state_is_loaded(zero, out.changes.new_optimizer ? 0 : out.manifest.training.optimizer_steps);
        return out;
      }
    }
    is_security = is_security || reads.is_security();
    failed.push_back(path);
    warnings.push_back(text(failure, "\n  trying the checkpoint before it"));
    failures += text(failures.empty() ? "" : "\n  ", failure);
  }
  failures +=
      "\n  no other checkpoint is left\n  fix: checkpoint.resume = \"never\" starts a new run; trireme checkpoint "
      "verify shows what is damaged";
  require<SecurityError>(!is_security, failures);
  throw CheckpointError(failures);
}

}  // namespace trireme
