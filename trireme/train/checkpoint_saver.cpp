#include "trireme/train/checkpoint_saver.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <new>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/base/sha256.hpp"
#include "trireme/base/stopwatch.hpp"
#include "trireme/comm/group_text.hpp"
#include "trireme/comm/time_limit.hpp"
#include "trireme/comm/wait_together.hpp"

namespace trireme {
namespace {

bool is_no_memory(const std::exception& e) { return dynamic_cast<const std::bad_alloc*>(&e) != nullptr; }

/// Files of this rank that are written before the save goes on in the background.
struct WrittenBefore {
  checkpoint::Manifest shard{};
  std::exception_ptr failure{};
};

constexpr const char* kExportName = "export";  // a folder of the temporary one

}  // namespace

/// The save in progress on this rank.
struct CheckpointSaver::Save {
  Save(files::Fs& fs, checkpoint::BlockPool& pool, checkpoint::SaveTarget to, std::vector<RankFile> all,
       std::optional<at::Device> device, WrittenBefore written_before)
      : target(std::move(to)), rank_files(std::move(all)), before(std::move(written_before)) {
    for (const RankFile& file : rank_files)
      writers.push_back(std::make_unique<checkpoint::ShardWriter>(fs, pool, target, file.name));
    written = std::async(std::launch::async, [this, from = HostCopies(device)]() mutable { return run(from); });
  }
  ~Save() { cancel(); }  // `written` waits for its thread

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
      for (const auto& writer : writers) checkpoint::add_shard(before.shard, writer->finish());
      return text(kWritten, checkpoint::to_json(before.shard));
    } catch (const std::exception& e) {
      give_up();
      return text(is_no_memory(e) ? kNoMemory : kFailed, e.what());
    }
  }

  /// No file is written any more when this rank says that it has failed: what there is, is removed then.
  void give_up() {
    for (const auto& writer : writers) writer->give_up();
  }

  bool is_over() const { return written.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }

  static constexpr char kWritten = '+', kFailed = '-', kNoMemory = 'm';
  checkpoint::SaveTarget target;
  checkpoint::Manifest manifest{};  // on rank 0
  std::function<void(const std::filesystem::path&)> export_weights{};
  std::vector<RankFile> rank_files;
  WrittenBefore before;
  std::vector<std::unique_ptr<checkpoint::ShardWriter>> writers{};
  std::promise<void> copied;
  std::shared_future<void> is_copied = copied.get_future().share();
  bool is_copied_everywhere = false;
  std::future<std::string> written;  // kWritten and the shard's manifest, or another one and the reason
};

CheckpointSaver::CheckpointSaver(SaverOptions options, Mesh& mesh)
    : options_(std::move(options)),
      mesh_(mesh),
      fs_(options_.fs != nullptr ? *options_.fs : files::real_fs()),
      pool_(options_.buffer_bytes),
      nonce_(broadcast_text(mesh.world().control(), hex_digits(random_bytes(16)))) {}

CheckpointSaver::~CheckpointSaver() = default;

void CheckpointSaver::start(Zero& zero, checkpoint::Manifest manifest, const std::vector<std::uint8_t>& random,
                            std::function<void(const std::filesystem::path&)> export_weights) {
  if (saves_ > 0) finish();
  const Stopwatch time;
  // The same on all ranks, and of no other save, without a word between them.
  const std::string unique = text(nonce_, " ", saves_++, " ", manifest.training.step);
  const std::string id = str(files::xxh3(std::as_bytes(std::span(unique))));
  const checkpoint::SaveTarget target{.folder = options_.folder, .step = manifest.training.step, .id = id};
  std::vector<SavedPart> parts = saved_parts(zero), random_parts;
  std::optional<at::Device> device;
  for (const SavedPart& part : parts) device = part.values.device();
  if (!random.empty()) random_parts.push_back(random_part(mesh_.rank(), random));
  std::vector<RankFile> rank_files;
  WrittenBefore written;
  if (options_.format == CheckpointFormat::nanotron) {
    rank_files = nanotron_rank_files(mesh_, std::move(parts), std::move(random_parts),
                                     manifest.training.optimizer_steps, options_.lr_state(manifest.training.step));
    // Weights that are cut over ranks are gathered, which cannot be done in the background.
    try {
      written.shard = write_nanotron_model(zero, mesh_, fs_, pool_, target);
    } catch (const CommError&) {
      throw;
    } catch (const std::exception&) {
      written.failure = std::current_exception();
    }
  } else {
    std::ranges::move(random_parts, std::back_inserter(parts));
    rank_files = own_rank_files(mesh_.rank(), target.id, std::move(parts));
  }
  manifest.id = target.id;
  save_ = std::make_unique<Save>(fs_, pool_, target, std::move(rank_files), device, std::move(written));
  save_->manifest = std::move(manifest);
  save_->export_weights = std::move(export_weights);
  blocked_of_save_ = 0;
  add_blocked(time.seconds());
}

void CheckpointSaver::before_update() {
  if (!save_ || save_->is_copied_everywhere) return;
  const Stopwatch time;
  wait_together(mesh_.world().control(), save_->is_copied);
  save_->is_copied_everywhere = true;
  add_blocked(time.seconds());
}

bool CheckpointSaver::is_writing() const { return save_ && !save_->is_over(); }

void CheckpointSaver::settle() {
  require(save_ != nullptr, "settle() without a save");
  const Stopwatch time;
  std::vector<std::string> results = gather_texts(mesh_.world().control(), save_->written.get());
  const std::unique_ptr<Save> save = std::move(save_);
  std::optional<std::pair<std::size_t, std::string>> failed;  // the first rank, and its result; on rank 0
  for (std::size_t r = 0; r < results.size() && !failed; ++r)
    if (results[r].front() != Save::kWritten) failed.emplace(r, results[r]);
  if (save->export_weights && broadcast_text(mesh_.world().control(), failed ? "failed" : "").empty())
    run_export(save->target, save->export_weights);
  add_blocked(time.seconds());
  if (mesh_.rank() != 0) return;
  if (failed) {
    checkpoint::abandon(fs_, save->target);
    return fail(save->target, text("rank ", failed->first, ": ", failed->second.substr(1)),
                failed->second.front() == Save::kNoMemory);
  }
  committing_ = std::async(std::launch::async, [this, target = save->target, manifest = std::move(save->manifest),
                                                shards = std::move(results), blocked = blocked_of_save_]() mutable {
    return commit(target, std::move(manifest), shards, blocked);
  });
}

/// All files of the ranks are on the disk. Only rank 0 writes here, so only there anything can fail, perhaps in the
/// middle of what the ranks do together: it commits what there is, then finish() throws, and nothing is done together
/// any more.
void CheckpointSaver::run_export(const checkpoint::SaveTarget& target,
                                 const std::function<void(const std::filesystem::path&)>& export_weights) {
  const std::filesystem::path folder = target.temporary() / kExportName;
  if (mesh_.rank() != 0) return export_weights(folder);
  try {
    export_weights(folder);
    checkpoint::move_files_up(fs_, folder);
  } catch (const CommError&) {
    throw;
  } catch (const std::exception&) {
    not_exported_ = std::current_exception();
    checkpoint::remove_folder(fs_, folder);
  }
}

/// What is missing is not lost: the weights are in the checkpoint.
[[noreturn]] void CheckpointSaver::throw_not_exported() {
  const SaveOutcome& save = outcomes_.back();
  try {
    std::rethrow_exception(std::exchange(not_exported_, nullptr));
  } catch (const Error& e) {
    throw CheckpointError(save.failure.empty() ? text(save.path.string(),
                                                      " is saved, but without the weights for transformers: ", e.what(),
                                                      "\n  nothing is lost: trireme convert ", save.path.string(),
                                                      " OUT --to hf makes them of the checkpoint")
                                               : text(save.failure, "\n  ", e.what()));
  }
}

SaveOutcome CheckpointSaver::commit(const checkpoint::SaveTarget& target, checkpoint::Manifest manifest,
                                    const std::vector<std::string>& results, double blocked_seconds) {
  SaveOutcome outcome{.step = target.step, .path = target.final(), .blocked_seconds = blocked_seconds};
  try {
    std::vector<checkpoint::Manifest> shards;
    for (const std::string& result : results) shards.push_back(checkpoint::parse_shard(result.substr(1), "a shard"));
    checkpoint::merge_shards(manifest, shards);
    outcome.bytes = checkpoint::total_bytes(manifest);
    if (options_.before_commit) options_.before_commit();
    checkpoint::commit(fs_, target, std::move(manifest), options_.small_files);
  } catch (const std::exception& e) {
    checkpoint::abandon(fs_, target);
    outcome.failure = e.what();
    outcome.no_memory = is_no_memory(e);
    return outcome;
  }
  mesh_.world().recorder().checkpoint_committed();
  try {
    checkpoint::prune(fs_, options_.folder, options_.keep);
  } catch (const std::exception& e) {
    outcome.warning = e.what();
  }
  return outcome;
}

void CheckpointSaver::fail(const checkpoint::SaveTarget& target, const std::string& why, bool no_memory) {
  outcomes_.push_back({.step = target.step, .path = target.final(), .failure = why, .no_memory = no_memory});
}

void CheckpointSaver::wait_for_commit() {
  if (committing_.valid()) outcomes_.push_back(committing_.get());
}

void CheckpointSaver::finish() {
  const Stopwatch time;
  if (save_) {
    wait_together(mesh_.world().control(), save_->written);
    settle();
  }
  const LongWork committing(mesh_.world(), 0);
  while (committing_.valid() && committing_.wait_for(std::chrono::milliseconds(200)) != std::future_status::ready)
    committing.progress();
  wait_for_commit();
  if (not_exported_) throw_not_exported();
  // No rank exits, which would end the job, before the checkpoint is complete.
  mesh_.world().control().barrier().wait();
  add_blocked(time.seconds());
}

std::optional<SaveOutcome> CheckpointSaver::take_outcome() {
  if (committing_.valid() && committing_.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
    wait_for_commit();
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
