#include "trireme/train/save/checkpoint_saver.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <iostream>
#include <iterator>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/sha256.hpp"
#include "trireme/base/stopwatch.hpp"
#include "trireme/checkpoint/format/manifest_parts.hpp"
#include "trireme/comm/group_text.hpp"
#include "trireme/comm/time_limit.hpp"
#include "trireme/files/counted_fs.hpp"
#include "trireme/parallel/zero/saved_state.hpp"

namespace trireme {
namespace {

bool is_no_memory(const std::exception& e) { return dynamic_cast<const std::bad_alloc*>(&e) != nullptr; }

/// Files of this rank that are written before the save goes on in the background.
struct WrittenBefore {
  checkpoint::Manifest part{};
  std::exception_ptr failure{};
};

/// As std::async, but nothing waits for the thread: one that the storage does not answer must not keep the process.
template <class Work>
auto in_own_thread(Work work) {
  std::packaged_task<std::invoke_result_t<Work>()> task(std::move(work));
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  return result;
}

template <class Future>
bool is_over(const Future& work) {
  return work.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

constexpr std::chrono::milliseconds kTurn(200);

}  // namespace

/// What threads of saves use, also of one that never ends.
struct CheckpointSaver::Shared {
  Shared(SaverOptions all, FlightRecorder& of_rank)
      : options(std::move(all)),
        fs(options.fs != nullptr ? *options.fs : files::real_fs()),
        pool(options.buffer_bytes),
        recorder(&of_rank) {}

  template <class Use>
  void with_recorder(Use use) {
    const std::scoped_lock lock(mutex);
    if (recorder != nullptr) use(*recorder);
  }

  const SaverOptions options;
  files::CountedFs fs;
  checkpoint::BlockPool pool;
  std::mutex mutex;
  FlightRecorder* recorder;  // null when the saver is gone
};

/// What rank 0 has heard of the other ranks, for the thread that commits.
struct CheckpointSaver::Verdict {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<std::string> failure;  // "": all ranks have written their files
  bool no_memory = false;

  void say(const std::string& why, bool is_no_memory = false) {
    const std::scoped_lock lock(mutex);
    if (!failure) failure = why;
    no_memory = is_no_memory;
    changed.notify_all();
  }
};

/// The save in progress on this rank.
struct CheckpointSaver::Save {
  Save(const std::shared_ptr<Shared>& of, checkpoint::SaveTarget to, int of_rank, std::vector<RankFile> all,
       WrittenBefore written_before)
      : shared(of),
        target(std::move(to)),
        rank(of_rank),
        rank_files(std::move(all)),
        before(std::move(written_before)) {
    for (const RankFile& file : rank_files)
      writers.push_back(std::make_unique<checkpoint::ShardWriter>(shared->fs, shared->pool, target, file.name));
  }

  void cancel() {
    for (const auto& writer : writers) writer->cancel();
  }

  /// In a thread: no tensor changes meanwhile, because the update that would change one waits for `copied`.
  std::string run(HostCopies& host) {
    try {
      if (before.failure) std::rethrow_exception(before.failure);
      for (std::size_t i = 0; i < writers.size(); ++i) {
        rank_files[i].write(*writers[i], host);
        writers[i]->end();
      }
      copied.set_value();
    } catch (const std::exception& e) {
      give_up();
      copied.set_value();
      return text(is_no_memory(e) ? kNoMemory : kFailed, e.what());
    }
    try {
      for (const auto& writer : writers) checkpoint::add_file(before.part, writer->finish());
      checkpoint::write_part(shared->fs, target, rank, std::move(before.part));
      return std::string(1, kWritten);
    } catch (const std::exception& e) {
      give_up();
      return text(is_no_memory(e) ? kNoMemory : kFailed, e.what());
    }
  }

  /// No file is written any more when this rank says that it has failed: what there is, is removed then.
  void give_up() {
    for (const auto& writer : writers) writer->give_up();
  }

  static constexpr char kWritten = '+', kFailed = '-', kNoMemory = 'm';
  const std::shared_ptr<Shared> shared;
  const checkpoint::SaveTarget target;
  const int rank;
  std::vector<RankFile> rank_files;
  WrittenBefore before;
  std::vector<std::unique_ptr<checkpoint::ShardWriter>> writers{};
  std::promise<void> copied;
  std::shared_future<void> is_copied = copied.get_future().share();
  bool is_copied_everywhere = false;
  std::future<std::string> written;  // kWritten, or another one and the reason
};

CheckpointSaver::CheckpointSaver(SaverOptions options, Mesh& mesh)
    : mesh_(mesh),
      shared_(std::make_shared<Shared>(std::move(options), mesh.world().recorder())),
      stall_limits_(shared_->options.stall),
      nonce_(broadcast_text(mesh.world().control(), hex_digits(random_bytes(16)))) {}

/// Whether the work ends before the storage counts as one that does not answer.
template <class Future>
bool CheckpointSaver::ends(const Future& work) const {
  StallWatch watch(stall_limits_);
  while (work.wait_for(kTurn) != std::future_status::ready)
    if (watch.look(shared_->fs.count()) == StallWatch::State::stalled) return false;
  return true;
}

CheckpointSaver::~CheckpointSaver() {
  // The storage may not answer, whoever noticed it first.
  bool answers = !is_stalled_;
  if (save_) save_->cancel();
  if (answers && save_) answers = ends(save_->written);
  if (answers && save_) save_->written.get();  // it does not throw
  if (verdict_) verdict_->say("the run ended during the save");
  if (answers && committing_.valid()) ends(committing_);
  const std::scoped_lock lock(shared_->mutex);
  shared_->recorder = nullptr;
}

void CheckpointSaver::start(Zero& zero, checkpoint::Manifest manifest, const RankState& of_rank) {
  if (saves_ > 0) finish();
  const Stopwatch time;
  // The same on all ranks, and of no other save, without a word between them.
  const std::string unique = text(nonce_, " ", saves_++, " ", manifest.training.step);
  const std::string id = str(files::xxh3(std::as_bytes(std::span(unique))));
  const checkpoint::SaveTarget target{.folder = shared_->options.folder, .step = manifest.training.step, .id = id};
  std::vector<SavedPart> parts = saved_parts(slices_to_save(zero)), own_parts = rank_parts(mesh_.rank(), of_rank);
  std::optional<at::Device> device;
  for (const SavedPart& part : parts) device = part.values.device();
  std::vector<RankFile> rank_files;
  WrittenBefore written;
  if (shared_->options.format == CheckpointFormat::nanotron) {
    rank_files = nanotron_rank_files(mesh_, std::move(parts), std::move(own_parts), manifest.training.optimizer_steps,
                                     shared_->options.lr_state(manifest.training.step));
    // Weights that are cut over ranks are gathered, which cannot be done in the background.
    try {
      written.part = write_nanotron_model(zero, mesh_, shared_->fs, shared_->pool, target);
    } catch (const CommError&) {
      throw;
    } catch (const std::exception&) {
      written.failure = std::current_exception();
    }
  } else {
    std::ranges::move(own_parts, std::back_inserter(parts));
    rank_files = own_rank_files(mesh_.rank(), target.id, std::move(parts));
  }
  manifest.id = target.id;
  stall_.emplace(stall_limits_);
  stalled_path_ = target.temporary();
  auto started = std::make_shared<Save>(shared_, target, mesh_.rank(), std::move(rank_files), std::move(written));
  started->written = in_own_thread([started, from = HostCopies(device)]() mutable {
    const std::shared_ptr<Save> save = std::move(started);  // else the task would hold the save, which holds the task
    HostCopies host = std::move(from);  // gone, as the tensors are, before anybody sees that the thread is done
    std::string result = save->run(host);
    save->rank_files.clear();
    return result;
  });
  save_ = std::move(started);  // only now: without memory for its thread there is no save to wait for
  if (mesh_.rank() == 0) {
    verdict_ = std::make_shared<Verdict>();
    committing_ = in_own_thread([shared = shared_, target, manifest = std::move(manifest), verdict = verdict_,
                                 world = mesh_.world().size()]() mutable {
      return commit_when_written(shared, target, std::move(manifest), world, verdict);
    });
  }
  blocked_of_save_ = 0;
  add_blocked(time.seconds());
}

/// Empty, or what to warn of. StorageError if there was no progress for too long.
std::string CheckpointSaver::look_for_stall() {
  if (!stall_) return "";
  const StallWatch::State state = stall_->look(shared_->fs.count());
  if (state == StallWatch::State::fine) return "";
  const std::string what =
      text(stalled_path_.string(), ": the storage does not respond: no file operation has completed for ",
           human_seconds(stall_->seconds()));
  if (state == StallWatch::State::warn)
    return text(what, "\n  the run ends after ", human_seconds(stall_limits_.timeout_s),
                " without progress (checkpoint.stall_timeout_s)");
  is_stalled_ = true;
  const std::string why =
      text("rank ", mesh_.rank(), ": ", what,
           "\n  earlier checkpoints are intact\n  fix: check the disk or the network that the folder "
           "is on; checkpoint.stall_timeout_s is the limit");
  if (shared_->options.on_stall) shared_->options.on_stall(why);
  throw StorageError(why);
}

void CheckpointSaver::before_update() {
  if (!save_ || save_->is_copied_everywhere) return;
  const Stopwatch time;
  wait_for_all_ranks(mesh_.world().control(), save_->is_copied, [this] { return look_for_stall(); });
  save_->is_copied_everywhere = true;
  add_blocked(time.seconds());
}

bool CheckpointSaver::is_writing() {
  if (!save_ || is_over(save_->written)) return false;
  if (const std::string warning = look_for_stall(); !warning.empty())
    std::cerr << text("warning: rank ", mesh_.rank(), ": ", warning, "\n") << std::flush;
  return true;
}

void CheckpointSaver::settle() {
  require(save_ != nullptr, "settle() without a save");
  const Stopwatch time;
  const std::string own = save_->written.get();
  save_.reset();
  const std::vector<std::string> results = gather_texts(mesh_.world().control(), own);
  const auto failed = std::ranges::find_if(results, [](const std::string& r) { return r.front() != Save::kWritten; });
  if (verdict_ && failed == results.end()) verdict_->say("");
  if (verdict_ && failed != results.end())
    verdict_->say(text("rank ", failed - results.begin(), ": ", failed->substr(1)), failed->front() == Save::kNoMemory);
  add_blocked(time.seconds());
}

/// On rank 0, in a thread: as soon as all ranks have written their parts of the manifest, which are seen in the folder,
/// or the verdict comes.
SaveOutcome CheckpointSaver::commit_when_written(const std::shared_ptr<Shared>& shared,
                                                 const checkpoint::SaveTarget& target, checkpoint::Manifest manifest,
                                                 int world, const std::shared_ptr<Verdict>& verdict) {
  // Until the commit begins a failure would cost the checkpoint; a folder with many files takes a while to list.
  const std::chrono::milliseconds between_looks(50 + world / 5);
  std::unique_lock lock(verdict->mutex);
  bool all_written = false;
  for (;;) {
    const bool is_last_look = verdict->failure.has_value();
    lock.unlock();
    all_written = checkpoint::count_parts(target) == world;
    lock.lock();
    if (all_written || is_last_look) break;
    verdict->changed.wait_for(lock, between_looks, [&] { return verdict->failure.has_value(); });
  }
  const std::string failure = verdict->failure.value_or("");
  const bool no_memory = verdict->no_memory;
  lock.unlock();
  if (!all_written && !failure.empty()) {
    checkpoint::abandon(shared->fs, target);
    return {.step = target.step, .path = target.final(), .failure = failure, .no_memory = no_memory};
  }
  shared->with_recorder([](FlightRecorder& recorder) { recorder.commit_begins(); });
  SaveOutcome outcome = commit(*shared, target, std::move(manifest), world);
  shared->with_recorder([](FlightRecorder& recorder) { recorder.commit_ends(); });
  if (!outcome.failure.empty()) return outcome;
  try {
    checkpoint::prune(shared->fs, shared->options.folder, shared->options.keep, shared->options.keep_every);
  } catch (const std::exception& e) {
    outcome.warning = e.what();
  }
  return outcome;
}

SaveOutcome CheckpointSaver::commit(Shared& shared, const checkpoint::SaveTarget& target, checkpoint::Manifest manifest,
                                    int world) {
  SaveOutcome outcome{.step = target.step, .path = target.final()};
  try {
    checkpoint::collect_parts(manifest, target, world);
    outcome.bytes = checkpoint::total_bytes(manifest);
    if (shared.options.before_commit) shared.options.before_commit();
    checkpoint::commit(shared.fs, target, std::move(manifest), shared.options.small_files);
    shared.with_recorder([](FlightRecorder& recorder) { recorder.checkpoint_committed(); });
  } catch (const std::exception& e) {
    checkpoint::abandon(shared.fs, target);
    outcome.failure = e.what();
    outcome.no_memory = is_no_memory(e);
  }
  return outcome;
}

void CheckpointSaver::wait_for_commit() {
  if (!committing_.valid()) return;
  outcomes_.push_back(committing_.get());
  outcomes_.back().blocked_seconds = blocked_of_save_;
  verdict_.reset();
}

void CheckpointSaver::finish() {
  const Stopwatch time;
  if (save_) {
    wait_for_all_ranks(mesh_.world().control(), save_->written, [this] { return look_for_stall(); });
    settle();
  }
  const LongWork committing(mesh_.world(), 0);
  while (committing_.valid() && committing_.wait_for(kTurn) != std::future_status::ready) {
    if (const std::string warning = look_for_stall(); !warning.empty())
      std::cerr << "warning: " << warning << std::endl;
    committing.progress();
  }
  wait_for_commit();
  // No rank exits, which would end the job, before the checkpoint is complete.
  mesh_.world().control().barrier().wait();
  stall_.reset();
  add_blocked(time.seconds());
}

std::optional<SaveOutcome> CheckpointSaver::take_outcome() {
  if (committing_.valid() && is_over(committing_)) wait_for_commit();
  if (outcomes_.empty()) return std::nullopt;
  SaveOutcome first = std::move(outcomes_.front());
  outcomes_.pop_front();
  return first;
}

void CheckpointSaver::add_blocked(double seconds) {
  blocked_seconds_ += seconds;
  blocked_of_save_ += seconds;
}

double CheckpointSaver::take_blocked_seconds() { return std::exchange(blocked_seconds_, 0); }

}  // namespace trireme
