#include "trireme/module/module_checkpoint.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <sstream>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "trireme/base/error.hpp"
#include "trireme/base/sha256.hpp"
#include "trireme/base/wall_clock.hpp"
#include "trireme/checkpoint/format/commit.hpp"
#include "trireme/checkpoint/format/manifest_parts.hpp"
#include "trireme/checkpoint/format/reader.hpp"
#include "trireme/checkpoint/format/shard_writer.hpp"
#include "trireme/comm/random_state.hpp"
#include "trireme/files/folder_lock.hpp"
#include "trireme/module/agreed_failure.hpp"
#include "trireme/module/module_load.hpp"
#include "trireme/module/module_parts.hpp"
#include "trireme/module/optimizer_states.hpp"
#include "trireme/module/scheduler_state.hpp"
#include "trireme/parallel/state/rank_files.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
namespace cp = checkpoint;

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

bool has_first_element(const Box& box) {
  return std::ranges::all_of(box, [](const Range& range) { return range.begin == 0; });
}

std::vector<StateSlice> slices_of_rank(const ModuleParts& module, const SaveCheckpointOptions& options) {
  std::vector<StateSlice> out;
  for (const KeptTensor& kept : module.kept) {
    const auto flat = [](const at::Tensor& tensor) { return tensor.detach().reshape({-1}); };
    std::vector<ShardTensor> tensors{{cp::kWeight, flat(kept.tensor)}};
    std::optional<TensorState> state;
    if (options.optimizer) state = get_state(*options.optimizer, kept.tensor);
    if (state)
      for (const auto& [kind, tensor] : state->tensors) tensors.push_back({kind, flat(tensor)});
    for (StateSlice& slice : saved_slices(kept, tensors, module.mesh)) {
      // By the rank that has the first element.
      if (state && state->step && slice.kind == cp::kWeight && has_first_element(slice.box))
        out.push_back(whole_slice(slice.name, kStepKind, at::full({1}, *state->step, at::kLong)));
      out.push_back(std::move(slice));
    }
  }
  if (module.saves_buffers)
    for (const NamedTensor& buffer : module.buffers)
      if (buffer.value.numel() > 0) out.push_back(whole_slice(buffer.name, kBufferKind, buffer.value.detach()));
  return out;
}

/// What this rank writes; with what it has besides tensors of the module.
std::vector<SavedPart> parts_of_rank(const ModuleParts& module, const SaveCheckpointOptions& options, int rank) {
  RankState of_rank;
  if (options.random)
    of_rank[cp::kRandom] = to_bytes(get_current_random_state(RandomSource::of_process(0, module.device)));
  std::vector<SavedPart> parts = rank_parts(rank, of_rank);
  std::vector<StateSlice> slices = slices_of_rank(module, options);
  if (options.optimizer && rank == 0 && optimizer_name(*options.optimizer) == kOtherOptimizer) {
    const std::string archive = archive_of(*options.optimizer);
    const at::Tensor bytes = at::empty({std::ssize(archive)}, at::kByte);
    std::memcpy(bytes.mutable_data_ptr(), archive.data(), archive.size());
    slices.push_back(whole_slice("optimizer", kArchiveKind, bytes));
  }
  for (const StateSlice& slice : slices) stored_dtype(slice.name, slice.values.scalar_type());
  std::ranges::move(saved_parts(slices), std::back_inserter(parts));
  return parts;
}

void write_rank_file(files::Fs& fs, std::vector<SavedPart> parts, const cp::SaveTarget& target, int rank,
                     at::Device device) {
  cp::BlockPool pool(kWriteBytes);
  HostCopies host(device);
  for (const RankFile& file : own_rank_files(rank, target.id, std::move(parts))) {
    cp::ShardWriter writer(fs, pool, target, file.name);
    file.write(writer, host);
    writer.end();
    cp::write_part(fs, target, rank, writer.finish());
  }
}

/// Where the tensors are that are copied to the host.
at::Device tensors_on(const ModuleParts& module) {
  return module.kept.empty() ? module.device : module.kept[0].tensor.device();
}

std::map<std::string, std::int64_t> layout_of(const CheckpointedModule& what) {
  std::map<std::string, std::int64_t> out{{"world", what.group().size()}};
  if (what.mesh())
    for (const auto& [axis, degree] : what.mesh()->mesh().grid().axes()) out[name(axis)] = degree;
  return out;
}

/// Entries of Manifest::config, one per line: "key\tvalue". Empty without an optimizer: a rank of a pipeline may have
/// nothing to train.
std::string config_of_optimizer(const SaveCheckpointOptions& options) {
  std::string lines;
  if (options.optimizer) lines += text(kOptimizerKey, "\t", optimizer_name(*options.optimizer), "\n");
  if (options.scheduler)
    lines += text(kRatesKey, "\t", rates_text(*options.optimizer), "\n", kSchedulerKey, "\t",
                  steps_of(*options.scheduler), "\n");
  return lines;
}

void add_config(const std::string& lines, cp::Manifest& manifest) {
  std::istringstream in(lines);
  for (std::string key, value; std::getline(in, key, '\t') && std::getline(in, value);) manifest.config[key] = value;
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
    std::vector<SavedPart> parts;
    Failure failure = failure_of([&] {
      require<ConfigError>(step >= 0, "save_checkpoint: step ", step, ": must be at least 0");
      if (options.optimizer) {
        check_optimizer_of(module, *options.optimizer);
        require<ConfigError>(module.has_everything || optimizer_name(*options.optimizer) != kOtherOptimizer,
                             "save_checkpoint: the states of this optimizer are not known by name, so those of shards ",
                             "cannot be saved\n  fix: Adam, AdamW, SGD, Adagrad or RMSprop; or save without it");
      }
      require<ConfigError>(!options.scheduler || options.optimizer,
                           "save_checkpoint: a scheduler without its optimizer\n  fix: give both");
      parts = parts_of_rank(module, options, group.rank());
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

    std::string of_optimizer;
    failure = failure_of([&] {
      write_rank_file(fs, std::move(parts), target, group.rank(), tensors_on(module));
      of_optimizer = config_of_optimizer(options);
    });
    const std::vector<std::string> of_optimizers = agree_on(group, module.device, failure, of_optimizer);

    std::string warning;
    failure = failure_of([&] {
      if (group.rank() != 0) return;
      cp::Manifest manifest{.id = target.id,
                            .program = "trireme library",
                            .time = utc_text(std::chrono::system_clock::now()),
                            .layout = layout_of(what)};
      const auto first = std::ranges::find_if(of_optimizers, [](const std::string& lines) { return !lines.empty(); });
      if (first != of_optimizers.end()) add_config(*first, manifest);
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
