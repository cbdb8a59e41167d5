#include "trireme/train/checkpoint_saver.hpp"

#include <chrono>
#include <new>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "trireme/base/error.hpp"
#include "trireme/base/sha256.hpp"
#include "trireme/base/stopwatch.hpp"
#include "trireme/comm/group_text.hpp"
#include "trireme/comm/time_limit.hpp"
#include "trireme/layout/box_copy.hpp"
#include "trireme/train/dtypes.hpp"

namespace trireme {
namespace {

constexpr std::chrono::milliseconds kTurn(200);

bool is_no_memory(const std::exception& e) { return dynamic_cast<const std::bad_alloc*>(&e) != nullptr; }

/// A slice of at most kMaxSliceBytes.
struct Part {
  checkpoint::PlannedSlice plan;
  at::Tensor values;
};

std::vector<Part> parts_of(const std::vector<StateSlice>& slices) {
  std::vector<Part> out;
  for (const StateSlice& slice : slices) {
    const auto most = static_cast<std::int64_t>(checkpoint::kMaxSliceBytes / slice.values.element_size());
    for (const Box& box : checkpoint::split_box(slice.box, most))
      out.push_back({{.name = slice.name,
                      .kind = slice.kind,
                      .dtype = file_dtype(slice.values.scalar_type()),
                      .shape = slice.shape,
                      .box = box},
                     box_view(slice.values, relative_to(box, slice.box))});
  }
  return out;
}

/// The generators of a rank.
Part random_part(int rank, const std::vector<std::uint8_t>& random) {
  const auto size = static_cast<std::int64_t>(random.size());
  const at::Tensor values = at::zeros({size}, at::kByte);
  std::copy(random.begin(), random.end(), values.mutable_data_ptr<std::uint8_t>());
  return {{.name = text("rank-", rank),
           .kind = checkpoint::kRandom,
           .dtype = files::SafetensorsDtype::U8,
           .shape = {size},
           .box = {{0, size}}},
          values};
}

/// Copies of tensors in host memory, made by a thread of their own. On a GPU they are made on a stream of their own,
/// after everything that the device had to do when this was created.
class HostCopies {
 public:
  explicit HostCopies(const std::vector<Part>& parts) {
    for (const Part& part : parts)
      if (!part.values.is_cpu()) device_ = part.values.device();
    if (!device_) return;
    const c10::impl::VirtualGuardImpl guard(device_->type());
    ready_ = std::make_shared<c10::Event>(device_->type());
    ready_->record(guard.getStream(*device_));
  }

  /// Contiguous; valid until the next call.
  at::Tensor of(const at::Tensor& values) {
    const c10::InferenceMode no_autograd;
    if (values.is_cpu()) return values.contiguous();
    const c10::impl::VirtualGuardImpl guard(device_->type());
    if (!stream_) {
      stream_ = guard.getStreamFromGlobalPool(*device_);
      ready_->block(*stream_);
      pinned_ = at::empty({static_cast<std::int64_t>(checkpoint::kMaxSliceBytes)},
                          at::TensorOptions(at::kByte).pinned_memory(true));
    }
    const c10::StreamGuard on(*stream_);
    const at::Tensor host = pinned_.narrow(0, 0, static_cast<std::int64_t>(values.nbytes()))
                                .view(values.scalar_type())
                                .view(values.sizes());
    host.copy_(values, /*non_blocking=*/true);
    stream_->synchronize();
    return host;
  }

 private:
  std::optional<at::Device> device_;  // of a GPU
  std::shared_ptr<c10::Event> ready_;
  std::optional<c10::Stream> stream_;
  at::Tensor pinned_;
};

}  // namespace

/// The save in progress on this rank.
struct CheckpointSaver::Save {
  Save(files::Fs& fs, checkpoint::BlockPool& pool, checkpoint::SaveTarget to, int rank, std::vector<Part> all)
      : target(std::move(to)), parts(std::move(all)) {
    std::vector<checkpoint::PlannedSlice> plan;
    for (const Part& part : parts) plan.push_back(part.plan);
    writer = std::make_unique<checkpoint::ShardWriter>(fs, pool, target, rank, std::move(plan));
    written = std::async(std::launch::async, [this, from = HostCopies(parts)]() mutable { return run(from); });
  }
  ~Save() { writer->cancel(); }  // `written` waits for its thread

  /// In a thread: no tensor changes meanwhile, because the update that would change one waits for `copied`.
  std::string run(HostCopies& host) {
    try {
      for (const Part& part : parts) {
        const at::Tensor values = host.of(part.values);
        writer->append({static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()});
      }
      writer->end();
      copied.set_value();
    } catch (const std::exception& e) {
      writer->cancel();
      copied.set_value();
      return text(is_no_memory(e) ? kNoMemory : kFailed, e.what());
    }
    try {
      return text(kWritten, checkpoint::to_json(writer->finish()));
    } catch (const std::exception& e) {
      return text(kFailed, e.what());
    }
  }

  bool is_over() const { return written.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }

  static constexpr char kWritten = '+', kFailed = '-', kNoMemory = 'm';
  checkpoint::SaveTarget target;
  checkpoint::Manifest manifest{};  // on rank 0
  std::vector<Part> parts;
  std::unique_ptr<checkpoint::ShardWriter> writer;
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

void CheckpointSaver::start(const Zero& zero, checkpoint::Manifest manifest, const std::vector<std::uint8_t>& random,
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
  std::vector<Part> parts = parts_of(slices_to_save(zero));
  if (!random.empty()) parts.push_back(random_part(mesh_.rank(), random));
  manifest.id = target.id;
  save_ = std::make_unique<Save>(fs_, pool_, target, mesh_.rank(), std::move(parts));
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
