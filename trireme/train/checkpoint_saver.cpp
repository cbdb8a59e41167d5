#include "trireme/train/checkpoint_saver.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <new>
#include <utility>

#include <ATen/ops/full.h>

#include "trireme/base/error.hpp"
#include "trireme/base/sha256.hpp"
#include "trireme/base/stopwatch.hpp"
#include "trireme/comm/group_text.hpp"
#include "trireme/comm/time_limit.hpp"

namespace trireme {
namespace {

constexpr std::chrono::milliseconds kTurn(200);

bool is_no_memory(const std::exception& e) { return dynamic_cast<const std::bad_alloc*>(&e) != nullptr; }

/// Files of this rank that are written before the save goes on in the background.
struct WrittenBefore {
  checkpoint::Manifest shard{};
  std::string failure{};
};

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
      require<CheckpointError>(before.failure.empty(), before.failure);
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
  std::vector<RankFile> rank_files;
  WrittenBefore before;
  std::vector<std::unique_ptr<checkpoint::ShardWriter>> writers{};
  std::promise<void> copied;
  std::shared_future<void> is_copied = copied.get_future().share();
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
                            const std::function<void(const std::filesystem::path&)>& export_weights) {
  if (save_) finish();
  wait_for_commit();
  const Stopwatch time;
  // The same on all ranks, and of no other save, without a word between them.
  const std::string unique = text(nonce_, " ", saves_++, " ", manifest.training.step);
  const std::string id = str(files::xxh3(std::as_bytes(std::span(unique))));
  const checkpoint::SaveTarget target{.folder = options_.folder, .step = manifest.training.step, .id = id};
  if (export_weights) {
    if (mesh_.rank() == 0) checkpoint::begin_save(fs_, target);
    export_weights(target.temporary());
  }
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
    } catch (const CheckpointError& e) {
      written.failure = e.what();
    }
  } else {
    std::ranges::move(random_parts, std::back_inserter(parts));
    rank_files = own_rank_files(mesh_.rank(), target.id, std::move(parts));
  }
  manifest.id = target.id;
  save_ = std::make_unique<Save>(fs_, pool_, target, std::move(rank_files), device, std::move(written));
  save_->manifest = std::move(manifest);
  blocked_of_save_ = 0;
  add_blocked(time.seconds());
}

void CheckpointSaver::before_update() {
  if (!save_) return;
  const Stopwatch time;
  save_->is_copied.wait();
  add_blocked(time.seconds());
}

bool CheckpointSaver::is_writing() const { return save_ && !save_->is_over(); }

void CheckpointSaver::settle() {
  require(save_ != nullptr, "settle() without a save");
  const Stopwatch time;
  std::vector<std::string> results = gather_texts(mesh_.world().control(), save_->written.get());
  const std::unique_ptr<Save> save = std::move(save_);
  add_blocked(time.seconds());
  if (mesh_.rank() != 0) return;
  for (std::size_t r = 0; r < results.size(); ++r)
    if (const char result = results[r].front(); result != Save::kWritten) {
      checkpoint::abandon(fs_, save->target);
      return fail(save->target, text("rank ", r, ": ", results[r].substr(1)), result == Save::kNoMemory);
    }
  committing_ = std::async(std::launch::async, [this, target = save->target, manifest = std::move(save->manifest),
                                                shards = std::move(results), blocked = blocked_of_save_]() mutable {
    return commit(target, std::move(manifest), shards, blocked);
  });
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
  outcome_ = SaveOutcome{.step = target.step, .path = target.final(), .failure = why, .no_memory = no_memory};
}

void CheckpointSaver::wait_for_commit() {
  if (committing_.valid()) outcome_ = committing_.get();
}

void CheckpointSaver::finish() {
  const Stopwatch time;
  Group& control = mesh_.world().control();
  while (save_) {
    // In short turns: a rank that writes for minutes must not look like one that hangs.
    save_->written.wait_for(kTurn);
    const at::Tensor writing = at::full({1}, is_writing() ? 1 : 0, at::kLong);
    if (control.all_reduce_(writing).wait().item<std::int64_t>() == 0) settle();
  }
  const LongWork committing(mesh_.world(), 0);
  while (committing_.valid() && committing_.wait_for(kTurn) != std::future_status::ready) committing.progress();
  wait_for_commit();
  control.barrier().wait();  // no rank exits, which would end the job, before the checkpoint is complete
  add_blocked(time.seconds());
}

std::optional<SaveOutcome> CheckpointSaver::take_outcome() {
  if (committing_.valid() && committing_.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
    wait_for_commit();
  return std::exchange(outcome_, std::nullopt);
}

void CheckpointSaver::add_blocked(double seconds) {
  blocked_seconds_ += seconds;
  blocked_of_save_ += seconds;
}

double CheckpointSaver::take_blocked_seconds() { return std::exchange(blocked_seconds_, 0); }

}  // namespace trireme
