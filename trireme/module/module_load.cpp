#include "trireme/module/module_load.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/format/commit.hpp"
#include "trireme/checkpoint/format/reader.hpp"
#include "trireme/checkpoint/sources/model_source.hpp"
#include "trireme/comm/random_state.hpp"
#include "trireme/module/optimizer_states.hpp"
#include "trireme/module/scheduler_state.hpp"
#include "trireme/parallel/state/read_slices.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
namespace cp = checkpoint;
/// Whether this rank reads the tensor, for all that keep the same.
bool is_reader(const KeptTensor& kept) { return kept.replicas == nullptr || kept.replicas->rank() == 0; }

/// From the one that has read it to those that keep the same.
void spread_to_replicas(const KeptTensor& kept, const at::Tensor& values) {
  if (kept.replicas == nullptr || kept.replicas->size() == 1 || values.numel() == 0) return;
  const at::Device device = kept.replicas->only_device().value_or(values.device());
  const at::Tensor sent = as_real(values.detach()).to(device).contiguous();
  const at::Tensor received = kept.replicas->broadcast_(sent, 0).wait();
  if (!received.is_alias_of(values)) as_real(values.detach()).copy_(received);
}

}  // namespace

OpenedCheckpoint open_newest(const fs::path& path) {
  std::error_code error;
  require<CheckpointError>(fs::is_directory(path, error), path.string(), ": there is no such folder");
  const std::vector<cp::FoundCheckpoint> found = cp::checkpoints_in(path);
  // A checkpoint, or the Reader tells why it is none.
  if (found.empty()) return {path, std::make_unique<cp::Reader>(path)};
  std::string why;
  for (const cp::FoundCheckpoint& checkpoint : found) {
    try {
      return {checkpoint.path, std::make_unique<cp::Reader>(checkpoint.path)};
    } catch (const CheckpointError& e) {
      why += text("\n  ", e.what());
    } catch (const SecurityError& e) {  // a symlink, perhaps: the checkpoint before it may be good
      why += text("\n  ", e.what());
    }
  }
  throw CheckpointError(text(path.string(), ": none of its checkpoints is complete", why));
}

std::unique_ptr<cp::Reader> open_for_rank(const fs::path& path, const std::string& manifest, const ModuleParts& module,
                                          const LoadCheckpointOptions& options, int rank) {
  // Of ranks that keep the same one reads; but all learn how often a parameter was updated.
  std::set<std::string> read, counted, buffers;
  for (const KeptTensor& kept : module.kept)
    for (const ShardPart& part : kept.parts) {
      if (is_reader(kept)) read.insert(part.param->name);
      counted.insert(part.param->name);
    }
  for (const NamedTensor& buffer : module.buffers) buffers.insert(buffer.name);
  const auto is_wanted = [&](const std::string& name, const std::string& kind) {
    if (kind == cp::kRandom) return options.random && name == random_name(rank);
    if (kind == kBufferKind) return buffers.contains(name);
    if (kind == kArchiveKind) return options.optimizer != nullptr;
    if (kind == kStepKind) return counted.contains(name) && options.optimizer != nullptr;
    return read.contains(name) && (kind == cp::kWeight || options.optimizer != nullptr);
  };
  return std::make_unique<cp::Reader>(path, cp::parse_manifest(manifest, path.string()), is_wanted);
}

class ModuleLoad::Core {
 public:
  Core(std::unique_ptr<cp::Reader> reader, const ModuleParts& module, const LoadCheckpointOptions& options, int rank,
       int ranks)
      : reader_(std::move(reader)), module_(module), options_(options), optimizer_(options.optimizer) {
    check_names();
    if (optimizer_) check_states();
    if (options.scheduler) check_scheduler();
    read();
    const auto world = reader_->manifest().layout.find("world");
    if (const auto* random = stored(random_name(rank), cp::kRandom);
        options.random && random && world != reader_->manifest().layout.end() && world->second == ranks) {
      const at::Tensor bytes = read_bytes(*random);
      random_ = random_state_from_bytes({bytes.data_ptr<std::uint8_t>(), bytes.nbytes()});
    }
  }

  std::int64_t step() const { return reader_->manifest().training.step; }

  void apply() {
    const at::NoGradGuard no_grad;
    for (auto& [buffer, values] : buffers_) at::Tensor(buffer).copy_(values);
    for (auto& [kept, values] : weights_) set(*kept, kept->tensor, values);
    for (auto& [kept, state] : states_) {
      if (state)
        for (auto& [kind, values] : state->tensors) {
          const at::Tensor own = at::empty_like(kept->tensor.detach());
          set(*kept, own, values);
          values = own;
        }
      set_state(*optimizer_, kept->tensor, state);
    }
    if (!archive_.empty()) load_archive(*optimizer_, archive_);
    if (options_.scheduler) {
      set_rates(*optimizer_, config(kRatesKey));
      set_steps(*options_.scheduler, static_cast<unsigned>(std::stoul(config(kSchedulerKey))));
    }
    if (random_) {
      RandomSource source = RandomSource::of_process(0, module_.device);
      set_random_state(source, fitted_to(source, *random_, 0));
    }
    if (options_.fields) {
      options_.fields->clear();
      const std::string prefix = kFieldPrefix;
      for (const auto& [name, value] : reader_->manifest().config)
        if (name.starts_with(prefix)) options_.fields->emplace(name.substr(prefix.size()), value);
    }
  }

 private:
  const cp::StoredTensor* stored(const std::string& name, const std::string& kind) const {
    return cp::find(reader_->manifest(), name, kind);
  }
  /// "": the checkpoint does not say.
  std::string config(const std::string& key) const {
    const auto found = reader_->manifest().config.find(key);
    return found == reader_->manifest().config.end() ? "" : found->second;
  }
  at::Tensor read_bytes(const cp::StoredTensor& tensor) const {
    const at::Tensor out = at::empty({numel(tensor.shape)}, at::kByte);
    reader_->read(tensor, {{0, out.numel()}}, {static_cast<std::byte*>(out.mutable_data_ptr()), out.nbytes()});
    return out;
  }

  static void set(const KeptTensor& kept, at::Tensor tensor, const at::Tensor& values) {
    if (is_reader(kept)) tensor.copy_(values.view(tensor.sizes()));
    spread_to_replicas(kept, tensor);
  }

  void check_scheduler() const {
    std::istringstream rates(config(kRatesKey));
    const auto saved = std::distance(std::istream_iterator<std::string>(rates), {});
    require<CheckpointError>(saved > 0, reader_->shown(),
                             ": was saved without a scheduler\n  fix: load it without one");
    require<CheckpointError>(saved == std::ssize(optimizer_->param_groups()), reader_->shown(), ": has ", saved,
                             " learning rates, the optimizer has ", optimizer_->param_groups().size(),
                             " groups\n  fix: the same groups, or load it without the scheduler");
  }

  void check_names() const {
    std::vector<std::string> wrong;
    std::map<std::pair<std::string, std::string>, Shape> wanted;
    for (const WholeTensor& whole : module_.all)
      wanted[{whole.name, whole.is_buffer ? kBufferKind : cp::kWeight}] = whole.shape;
    for (const auto& [key, shape] : wanted) {
      const cp::StoredTensor* tensor = stored(key.first, key.second);
      if (tensor == nullptr && numel(shape) > 0)
        wrong.push_back(text(key.first, " (", key.second, ") is not in the checkpoint"));
      else if (tensor != nullptr && tensor->shape != shape)
        wrong.push_back(text(key.first, " (", key.second, ") has shape ", tuple_text(tensor->shape),
                             " in the checkpoint, ", tuple_text(shape), " in the module"));
    }
    for (const cp::StoredTensor& tensor : reader_->manifest().tensors)
      if ((tensor.kind == cp::kWeight || tensor.kind == kBufferKind) && !wanted.contains({tensor.name, tensor.kind}))
        wrong.push_back(text(tensor.name, " (", tensor.kind, ") of the checkpoint has no place in the module"));
    cp::require_fit(reader_->shown(), wrong, "the module that the checkpoint was made with");
  }

  void check_states() const {
    const auto saved = reader_->manifest().config.find(kOptimizerKey);
    require<CheckpointError>(saved != reader_->manifest().config.end(), reader_->shown(), ": holds no optimizer states",
                             "\n  fix: load it without an optimizer");
    const std::string own = optimizer_name(*optimizer_);
    require<CheckpointError>(saved->second == own, reader_->shown(), ": its optimizer states are of ", saved->second,
                             ", the optimizer is ", own, "\n  fix: the same optimizer, or load it without one");
    std::vector<std::string> wrong;
    const std::vector<std::string> known = all_state_names(*optimizer_);
    for (const cp::StoredTensor& tensor : reader_->manifest().tensors) {
      if (!is_state(tensor.kind)) continue;
      if (std::ranges::find(known, tensor.kind) == known.end())
        wrong.push_back(text(tensor.name, " (", tensor.kind, "): the optimizer has no such state"));
    }
    // What is on other ranks only, they check.
    for (const KeptTensor& kept : module_.kept)
      if (const auto names = state_names(*optimizer_, kept.tensor))
        for (const ShardPart& part : kept.parts) check_states_of(part.param->name, *names, known, wrong);
    cp::require_fit(reader_->shown(), wrong, "the options that the optimizer had: amsgrad, momentum");
  }

  /// All states of a parameter, or none: it was not updated yet.
  void check_states_of(const std::string& parameter, const std::vector<std::string>& wanted,
                       const std::vector<std::string>& known, std::vector<std::string>& wrong) const {
    const auto is_stored = [&](const std::string& kind) { return stored(parameter, kind) != nullptr; };
    if (std::ranges::none_of(known, is_stored)) return;
    for (const std::string& kind : known) {
      const bool is_wanted = std::ranges::find(wanted, kind) != wanted.end();
      if (is_wanted && !is_stored(kind))
        wrong.push_back(text(parameter, " (", kind, ") is not in the checkpoint"));
      else if (!is_wanted && is_stored(kind))
        wrong.push_back(text(parameter, " (", kind, "): the optimizer has no such state"));
    }
  }

  void read() {
    if (optimizer_ && optimizer_name(*optimizer_) == kOtherOptimizer) {
      const at::Tensor bytes = read_bytes(*stored("optimizer", kArchiveKind));
      archive_.assign(static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes());
    }
    std::vector<StateSlice> wanted;
    for (const NamedTensor& buffer : module_.buffers) {
      const at::Tensor values = at::empty(buffer.value.sizes(), buffer.value.scalar_type());
      if (values.numel() > 0) wanted.push_back(whole_slice(buffer.name, kBufferKind, values));
      buffers_.emplace_back(buffer.value, values);
    }
    for (const KeptTensor& kept : module_.kept) {
      weights_.emplace_back(&kept, to_read(kept, cp::kWeight, wanted));
      if (!optimizer_) continue;
      if (const auto names = state_names(*optimizer_, kept.tensor))
        states_.emplace_back(&kept, state_to_read(kept, *names, wanted));
    }
    for (const StateSlice& slice : wanted)
      dtype_in_memory(reader_->shown(), text(slice.name, " (", slice.kind, ")"), stored(slice.name, slice.kind)->dtype);
    read_slices(*reader_, wanted);
  }

  /// Undefined if another rank reads it. Padding, and what the checkpoint does not hold, is zero.
  at::Tensor to_read(const KeptTensor& kept, const std::string& kind, std::vector<StateSlice>& wanted) const {
    if (!is_reader(kept)) return {};
    const ShardTensor flat{kind, at::zeros({kept.tensor.numel()}, kept.tensor.scalar_type())};
    for (StateSlice& slice : held_slices(kept, {&flat, 1}, module_.mesh))
      if (stored(slice.name, kind) != nullptr) wanted.push_back(std::move(slice));
    return flat.flat;
  }

  /// A parameter that was never updated has none; beside others in one tensor its states are zero.
  std::optional<TensorState> state_to_read(const KeptTensor& kept, const std::vector<std::string>& names,
                                           std::vector<StateSlice>& wanted) const {
    TensorState state;
    for (const std::string& kind : names)
      if (std::ranges::any_of(kept.parts, [&](const ShardPart& part) { return stored(part.param->name, kind); }))
        state.tensors[kind] = to_read(kept, kind, wanted);
    if (state.tensors.empty()) return std::nullopt;
    std::string first;
    for (const ShardPart& part : kept.parts) {
      const std::string& name = part.param->name;
      const cp::StoredTensor* tensor = stored(name, kStepKind);
      if (tensor == nullptr) continue;
      std::int64_t steps = 0;
      reader_->read(*tensor, {{0, 1}}, std::as_writable_bytes(std::span(&steps, 1)));
      require<CheckpointError>(!state.step || *state.step == steps, reader_->shown(), ": ", first, " had ",
                               state.step.value_or(0), " updates and ", name, " ", steps,
                               ": a unit that holds both has one number",
                               "\n  fix: load it into a module that is not sharded, or sharded by units without both");
      if (!state.step) first = name;
      state.step = steps;
    }
    return state;
  }

  const std::unique_ptr<const cp::Reader> reader_;
  const ModuleParts& module_;
  const LoadCheckpointOptions options_;
  torch::optim::Optimizer* const optimizer_;
  std::string archive_{};  // of an optimizer whose states have no names
  std::optional<RandomState> random_{};
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_{};         // and their new values
  std::vector<std::pair<const KeptTensor*, at::Tensor>> weights_{};  // flat
  std::vector<std::pair<const KeptTensor*, std::optional<TensorState>>> states_{};
};

ModuleLoad::ModuleLoad(std::unique_ptr<cp::Reader> reader, const ModuleParts& module,
                       const LoadCheckpointOptions& options, int rank, int ranks)
    : core_(std::make_unique<Core>(std::move(reader), module, options, rank, ranks)) {}
ModuleLoad::~ModuleLoad() = default;
std::int64_t ModuleLoad::step() const { return core_->step(); }
void ModuleLoad::apply() { core_->apply(); }

}  // namespace trireme
