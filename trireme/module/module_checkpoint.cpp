#include "trireme/module/module_checkpoint.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "trireme/base/error.hpp"
#include "trireme/base/sha256.hpp"
#include "trireme/base/wall_clock.hpp"
#include "trireme/checkpoint/format/commit.hpp"
#include "trireme/checkpoint/format/manifest_parts.hpp"
#include "trireme/checkpoint/format/reader.hpp"
#include "trireme/checkpoint/format/shard_writer.hpp"
#include "trireme/checkpoint/sources/model_source.hpp"
#include "trireme/comm/random_state.hpp"
#include "trireme/files/folder_lock.hpp"
#include "trireme/layout/flat_boxes.hpp"
#include "trireme/module/agreed_failure.hpp"
#include "trireme/module/module_load.hpp"
#include "trireme/module/module_parts.hpp"
#include "trireme/module/optimizer_states.hpp"
#include "trireme/module/scheduler_state.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
namespace cp = checkpoint;
using files::SafetensorsDtype;

constexpr std::size_t kWriteBytes = std::size_t{32} << 20;

/// Disks may be slower than comm.timeout_s.
class [[nodiscard]] PatientCalls {
 public:
  explicit PatientCalls(Group& group)
      : recorder_(group.recorder()),
        outer_(recorder_.set_limit(
            CallLimit{.seconds = std::max(group.options().init_timeout_s, group.options().timeout_s)})) {}
  ~PatientCalls() { recorder_.set_limit(outer_); }
  PatientCalls(const PatientCalls&) = delete;
  PatientCalls& operator=(const PatientCalls&) = delete;

 private:
  FlightRecorder& recorder_;
  const std::optional<CallLimit> outer_;
};

/// Elements that are to be written: `values` has them in a row.
struct WrittenSlice {
  cp::PlannedSlice plan;
  at::Tensor values;
};

/// Elements `range` of a tensor of this shape, which are `flat`.
void add_written(const std::string& name, const std::string& kind, const Shape& shape, Range range,
                 const at::Tensor& flat, std::vector<WrittenSlice>& out) {
  const auto most = static_cast<std::int64_t>(cp::kMaxSliceBytes / flat.element_size());
  std::int64_t begin = 0;
  for (const Box& whole : boxes_of_range(shape, range))
    for (const Box& box : cp::split_box(whole, most)) {
      const auto count = static_cast<std::int64_t>(cp::bytes_of_box(box, SafetensorsDtype::U8));
      out.push_back(
          {{.name = name, .kind = kind, .dtype = stored_dtype(name, flat.scalar_type()), .shape = shape, .box = box},
           flat.narrow(0, begin, count)});
      begin += count;
    }
}

at::Tensor tensor_of_bytes(const void* bytes, std::size_t size) {
  at::Tensor out = at::empty({static_cast<std::int64_t>(size)}, at::kByte);
  std::memcpy(out.mutable_data_ptr(), bytes, size);
  return out;
}

std::vector<WrittenSlice> slices_of_rank(const ModuleParts& module, const SaveCheckpointOptions& options,
                                         const Group& group) {
  const torch::optim::Optimizer* optimizer = options.optimizer;
  std::vector<WrittenSlice> out;
  const auto add_bytes = [&out](const std::string& name, const char* kind, const at::Tensor& bytes) {
    add_written(name, kind, {bytes.numel()}, {0, bytes.numel()}, bytes, out);
  };
  if (options.random) {
    const auto bytes = to_bytes(get_current_random_state(RandomSource::of_process(0, module.device)));
    add_bytes(random_name(group.rank()), cp::kRandom, tensor_of_bytes(bytes.data(), bytes.size()));
  }
  if (optimizer && group.rank() == 0 && optimizer_name(*optimizer) == kOtherOptimizer) {
    const std::string archive = archive_of(*optimizer);
    add_bytes("optimizer", kArchiveKind, tensor_of_bytes(archive.data(), archive.size()));
  }
  for (const KeptTensor& kept : module.kept) {
    std::optional<TensorState> state;
    if (optimizer) state = get_state(*optimizer, kept.tensor);
    for (const KeptTensor::Part& part : kept.parts) {
      Range range = part.range;
      if (module.is_replicated)
        range = {range.end * group.rank() / group.size(), range.end * (group.rank() + 1) / group.size()};
      const std::int64_t offset = part.offset + range.begin - part.range.begin;
      const auto add = [&](const std::string& kind, const at::Tensor& tensor) {
        const at::Tensor flat = tensor.detach().reshape({-1}).narrow(0, offset, range.size());
        add_written(part.name, kind, part.sizes, range, flat, out);
      };
      add(cp::kWeight, kept.tensor);
      if (!state) continue;
      for (const auto& [kind, tensor] : state->tensors) add(kind, tensor);
      // By the rank that has the first element.
      if (state->step && range.begin == 0 && range.size() > 0)
        add_written(part.name, kStepKind, {1}, {0, 1}, at::full({1}, *state->step, at::kLong), out);
    }
  }
  if (group.rank() == 0)
    for (const NamedTensor& buffer : module.buffers)
      add_written(buffer.name, kBufferKind, buffer.value.sizes().vec(), {0, buffer.value.numel()},
                  buffer.value.detach().reshape({-1}), out);
  return out;
}

void write_rank_file(files::Fs& fs, const std::vector<WrittenSlice>& slices, const cp::SaveTarget& target, int rank) {
  std::vector<cp::PlannedSlice> plan;
  for (const WrittenSlice& slice : slices) plan.push_back(slice.plan);
  const std::string header = cp::rank_file_header(plan, target.id);
  cp::BlockPool pool(kWriteBytes);
  cp::ShardWriter writer(fs, pool, target, cp::rank_file_name(rank));
  writer.append(std::as_bytes(std::span(header)));
  for (const WrittenSlice& slice : slices) {
    if (writer.has_failed()) break;
    const at::Tensor host = slice.values.contiguous().cpu();
    writer.append(slice.plan, {static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes()});
  }
  writer.end();
  cp::write_part(fs, target, rank, writer.finish());
}

/// What is saved is the newest: a folder means its newest checkpoint, and those with the lowest steps are pruned first.
void require_newest(const fs::path& folder, std::int64_t step) {
  for (const cp::FoundCheckpoint& found : cp::checkpoints_in(folder)) {
    if (found.step <= step) return;
    require<CheckpointError>(!cp::why_not_valid(found.path).empty(), folder.string(), ": has a checkpoint of step ",
                             found.step, ", so step ", step, " would not be its newest one: it would not be loaded, ",
                             "and be the first to be removed",
                             "\n  fix: save to another folder, or remove the checkpoints after step ", step);
  }
}

/// Why old checkpoints could not be removed, or "": no reason to give up one that is complete.
std::string prune_failure(files::Fs& fs, const fs::path& folder, std::int64_t keep) {
  try {
    cp::prune(fs, folder, keep);
    return "";
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace

SavedCheckpoint save_checkpoint(const fs::path& folder, std::int64_t step, const CheckpointedModule& what,
                                const SaveCheckpointOptions& options) {
  const at::NoGradGuard no_grad;
  Group& group = what.group();
  files::Fs& fs = options.fs != nullptr ? *options.fs : files::real_fs();
  const PatientCalls patient(group);
  const ModuleParts module = parts_of(what);
  cp::SaveTarget target{.folder = folder, .step = step, .id = {}};
  std::unique_ptr<files::FolderLock> lock;
  try {
    std::vector<WrittenSlice> slices;
    Failure failure = failure_of([&] {
      require<ConfigError>(step >= 0, "save_checkpoint: step ", step, ": must be at least 0");
      if (options.optimizer) {
        check_optimizer_of(module, *options.optimizer);
        require<ConfigError>(module.is_replicated || optimizer_name(*options.optimizer) != kOtherOptimizer,
                             "save_checkpoint: the states of this optimizer are not known by name, so those of shards ",
                             "cannot be saved\n  fix: Adam, AdamW, SGD, Adagrad or RMSprop; or save without it");
      }
      require<ConfigError>(!options.scheduler || options.optimizer,
                           "save_checkpoint: a scheduler without its optimizer\n  fix: give both");
      slices = slices_of_rank(module, options, group);
      if (group.rank() != 0) return;
      target.id = hex_digits(random_bytes(16));
      const int made = fs.make_folder(folder);
      require<CheckpointError>(made == 0 || made == EEXIST, folder.string(), ": could not be made: ", errno_text(made));
      lock = std::make_unique<files::FolderLock>(folder);
      cp::remove_unfinished(fs, folder);
      require_newest(folder, step);
      cp::begin_save(fs, target);
    });
    target.id = agree_on(group, module.device, failure, target.id)[0];

    failure = failure_of([&] { write_rank_file(fs, slices, target, group.rank()); });
    agree_on(group, module.device, failure);

    std::string warning;
    failure = failure_of([&] {
      if (group.rank() != 0) return;
      cp::Manifest manifest{.id = target.id,
                            .program = "trireme library",
                            .time = utc_text(std::chrono::system_clock::now()),
                            .layout = {{"world", group.size()}}};
      if (options.optimizer) manifest.config[kOptimizerKey] = optimizer_name(*options.optimizer);
      if (options.scheduler) {
        manifest.config[kRatesKey] = rates_text(*options.optimizer);
        manifest.config[kSchedulerKey] = std::to_string(steps_of(*options.scheduler));
      }
      for (const auto& [name, value] : options.fields) manifest.config[kFieldPrefix + name] = value;
      manifest.training.step = step;
      cp::collect_parts(manifest, target, group.size());
      lock->check();
      cp::commit(fs, target, std::move(manifest), {});
      group.recorder().checkpoint_committed();
      warning = prune_failure(fs, folder, options.keep);
    });
    warning = agree_on(group, module.device, failure, warning)[0];
    return {target.final(), warning};
  } catch (...) {
    // Without effect on a checkpoint that is complete.
    if (group.rank() == 0 && !target.id.empty()) cp::abandon(fs, target);
    throw;
  }
}

std::int64_t load_checkpoint(const fs::path& path, const CheckpointedModule& what,
                             const LoadCheckpointOptions& options) {
  const at::NoGradGuard no_grad;
  Group& group = what.group();
  const PatientCalls patient(group);
  const ModuleParts module = parts_of(what);
  // One rank chooses and opens all. The others get the manifest from it, and open only what they read.
  OpenedCheckpoint opened;
  std::string manifest;
  Failure failure = failure_of([&] {
    if (options.optimizer) check_optimizer_of(module, *options.optimizer);
    require<ConfigError>(!options.scheduler || options.optimizer,
                         "load_checkpoint: a scheduler without its optimizer\n  fix: give both");
    if (group.rank() != 0) return;
    opened = open_newest(path);
    if (group.size() > 1) manifest = to_json(opened.reader->manifest());
  });
  const fs::path chosen = agree_on(group, module.device, failure, opened.path.string())[0];
  if (group.size() > 1) manifest = broadcast_text(group, module.device, manifest);
  std::unique_ptr<ModuleLoad> load;
  failure = failure_of([&] {
    if (!opened.reader) opened.reader = open_for_rank(chosen, manifest, module, options, group.rank());
    load = std::make_unique<ModuleLoad>(std::move(opened.reader), module, options, group.rank(), group.size());
  });
  agree_on(group, module.device, failure);
  load->apply();
  return load->step();
}

}  // namespace trireme
