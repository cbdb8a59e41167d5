#include "trireme/module/module_checkpoint.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <map>
#include <span>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "trireme/base/error.hpp"
#include "trireme/base/sha256.hpp"
#include "trireme/base/wall_clock.hpp"
#include "trireme/checkpoint/commit.hpp"
#include "trireme/checkpoint/model_source.hpp"
#include "trireme/checkpoint/reader.hpp"
#include "trireme/checkpoint/shard_writer.hpp"
#include "trireme/files/folder_lock.hpp"
#include "trireme/layout/flat_boxes.hpp"
#include "trireme/module/optimizer_states.hpp"
#include "trireme/nn/layer.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
namespace cp = checkpoint;
using files::SafetensorsDtype;

constexpr const char* kBuffer = "buffer";
constexpr const char* kStep = "step";               // of the optimizer, for each parameter
constexpr const char* kOptimizerKey = "optimizer";  // of Manifest::config
constexpr std::size_t kWriteBytes = std::size_t{32} << 20;

constexpr std::array<std::pair<at::ScalarType, SafetensorsDtype>, 9> kStoredDtypes{
    {{at::kDouble, SafetensorsDtype::F64},
     {at::kFloat, SafetensorsDtype::F32},
     {at::kHalf, SafetensorsDtype::F16},
     {at::kBFloat16, SafetensorsDtype::BF16},
     {at::kLong, SafetensorsDtype::I64},
     {at::kInt, SafetensorsDtype::I32},
     {at::kShort, SafetensorsDtype::I16},
     {at::kByte, SafetensorsDtype::U8},
     {at::kBool, SafetensorsDtype::BOOL}}};

SafetensorsDtype stored_dtype(const std::string& name, at::ScalarType dtype) {
  const auto found = std::ranges::find(kStoredDtypes, dtype, [](const auto& pair) { return pair.first; });
  require<ConfigError>(found != kStoredDtypes.end(), "save_checkpoint: ", name, " is ", dtype,
                       ", which checkpoints do not hold");
  return found->second;
}

at::ScalarType dtype_in_memory(const std::string& shown, const cp::StoredTensor& tensor) {
  const auto found = std::ranges::find(kStoredDtypes, tensor.dtype, [](const auto& pair) { return pair.second; });
  require<CheckpointError>(found != kStoredDtypes.end(), shown, ": ", tensor.name, " (", tensor.kind, ") is ",
                           files::name(tensor.dtype), ", which a module cannot have");
  return found->first;
}

/// What this rank keeps of a module.
struct ModuleParts {
  std::vector<KeptTensor> kept;
  std::vector<NamedTensor> buffers;
  std::vector<std::pair<std::string, Shape>> parameters;  // all of them, also those of which nothing is here
  bool is_replicated = true;
  at::Device device = at::kCPU;
};

ModuleParts parts_of(const CheckpointedModule& what) {
  ModuleParts out;
  if (const ShardedModule* sharded = what.sharded()) {
    out.kept = sharded->kept();
    out.buffers = sharded->buffers();
    out.parameters = sharded->parameter_sizes();
    out.is_replicated = sharded->is_replicated();
  } else {
    for (const Param& param : params_of(*what.module()))
      require<ConfigError>(
          param.spec.placement.cuts.empty() || what.group().size() == 1, "a checkpoint of a module: ", param.name,
          " is cut over ranks, and each has another part of it", "\n  fix: a Zero or a Trainer saves such layers");
    for (const NamedTensor& parameter : distinct_parameters(*what.module())) {
      const Shape sizes = parameter.value.sizes().vec();
      out.parameters.emplace_back(parameter.name, sizes);
      out.kept.push_back({parameter.value, {{.name = parameter.name, .sizes = sizes, .range = {0, numel(sizes)}}}});
    }
    for (const auto& buffer : what.module()->named_buffers()) out.buffers.push_back({buffer.key(), buffer.value()});
  }
  if (!out.kept.empty()) out.device = out.kept[0].tensor.device();
  return out;
}

void check_optimizer_of(const ModuleParts& module, const torch::optim::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups())
    for (const at::Tensor& tensor : group.params())
      require<ConfigError>(
          std::ranges::any_of(module.kept, [&](const KeptTensor& k) { return k.tensor.is_same(tensor); }),
          "a checkpoint of an optimizer that updates a tensor of sizes ", tensor.sizes(),
          ", which is not the module's\n  fix: make it of the module's parameters, ",
          "or of shards() of the sharded module, after it was sharded");
}

// Texts over a group that may take only tensors of a device.

std::vector<std::string> texts_of_all(Group& group, at::Device device, const std::string& own) {
  const at::Tensor size = at::full({1}, static_cast<std::int64_t>(own.size()), at::kLong).to(device);
  const at::Tensor sizes = group.all_gather(size).wait().cpu();
  const std::int64_t longest = sizes.max().item<std::int64_t>();
  std::vector<std::string> out(static_cast<std::size_t>(group.size()));
  if (longest == 0) return out;
  at::Tensor bytes = at::zeros({longest}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), own.data(), own.size());
  const at::Tensor all = group.all_gather(bytes.to(device)).wait().cpu();
  for (std::size_t r = 0; r < out.size(); ++r)
    out[r].assign(static_cast<const char*>(all.const_data_ptr()) + static_cast<std::int64_t>(r) * longest,
                  static_cast<std::size_t>(sizes[static_cast<std::int64_t>(r)].item<std::int64_t>()));
  return out;
}

/// What a rank failed with, to be thrown on all of them.
struct Failure {
  ExitCode code = ExitCode::done;
  std::string what{};
};

Failure failure_of(const std::function<void()>& action) {
  try {
    action();
    return {};
  } catch (const CommError&) {
    throw;  // the others do not answer any more
  } catch (const Error& e) {
    return {e.exit_code(), e.what()};
  } catch (const std::exception& e) {
    return {ExitCode::checkpoint, e.what()};
  }
}

/// Collective: throws the failure of the first rank that has one. `texts`: what the others have to say.
std::vector<std::string> agree_on(Group& group, at::Device device, const Failure& own, const std::string& words = "") {
  const bool failed = own.code != ExitCode::done;
  std::vector<std::string> all =
      texts_of_all(group, device, failed ? text(static_cast<int>(own.code), "\n", own.what) : text("0\n", words));
  for (std::size_t r = 0; r < all.size(); ++r) {
    const std::size_t line = all[r].find('\n');
    const auto code = static_cast<ExitCode>(std::stoi(all[r].substr(0, line)));
    all[r].erase(0, line + 1);
    if (code == ExitCode::done) continue;
    const std::string told = group.size() == 1 ? all[r] : text("rank ", r, ": ", all[r]);
    if (code == ExitCode::config) throw ConfigError(told);
    if (code == ExitCode::security) throw SecurityError(told);
    throw CheckpointError(told);
  }
  return all;
}

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

std::vector<WrittenSlice> slices_of_rank(const ModuleParts& module, const torch::optim::Optimizer* optimizer,
                                         const Group& group) {
  std::vector<WrittenSlice> out;
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
        add_written(part.name, kStep, {1}, {0, 1}, at::full({1}, *state->step, at::kLong), out);
    }
  }
  if (group.rank() == 0)
    for (const NamedTensor& buffer : module.buffers)
      add_written(buffer.name, kBuffer, buffer.value.sizes().vec(), {0, buffer.value.numel()},
                  buffer.value.detach().reshape({-1}), out);
  return out;
}

std::string write_rank_file(const std::vector<WrittenSlice>& slices, const cp::SaveTarget& target, int rank) {
  std::vector<cp::PlannedSlice> plan;
  for (const WrittenSlice& slice : slices) plan.push_back(slice.plan);
  const std::string header = cp::rank_file_header(plan, target.id);
  cp::BlockPool pool(kWriteBytes);
  cp::ShardWriter writer(files::real_fs(), pool, target, cp::rank_file_name(rank));
  writer.append(std::as_bytes(std::span(header)));
  for (const WrittenSlice& slice : slices) {
    if (writer.has_failed()) break;
    const at::Tensor host = slice.values.contiguous().cpu();
    writer.append(slice.plan, {static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes()});
  }
  writer.end();
  return cp::to_json(writer.finish());
}

/// The newest complete checkpoint of a folder, or the checkpoint that `path` is.
fs::path chosen_checkpoint(const fs::path& path) {
  std::error_code error;
  require<CheckpointError>(fs::is_directory(path, error), path.string(), ": there is no such folder");
  const std::vector<cp::FoundCheckpoint> found = cp::checkpoints_in(path);
  if (found.empty()) return path;  // a checkpoint, or the Reader tells why it is none
  std::string why;
  for (const cp::FoundCheckpoint& checkpoint : found) {
    const std::string fault = cp::why_not_valid(checkpoint.path);
    if (fault.empty()) return checkpoint.path;
    why += "\n  " + fault;
  }
  throw CheckpointError(text(path.string(), ": none of its checkpoints is complete", why));
}

/// A checkpoint that is read for a module.
class Loading {
 public:
  Loading(const fs::path& path, const ModuleParts& module, torch::optim::Optimizer* optimizer)
      : reader_(path), module_(module), optimizer_(optimizer) {
    check_names();
    if (optimizer_) check_states();
    read();
  }

  std::int64_t step() const { return reader_.manifest().training.step; }

  /// Nothing can fail any more, except for want of memory.
  void apply() {
    const at::NoGradGuard no_grad;
    for (auto& [tensor, values] : values_) at::Tensor(tensor).copy_(values.view(tensor.sizes()));
    if (optimizer_)
      for (auto& [tensor, state] : states_) {
        if (state)
          for (auto& [kind, values] : state->tensors) {
            at::Tensor own = at::empty_like(tensor.detach());
            own.copy_(values.view(tensor.sizes()));
            values = own;
          }
        set_state(*optimizer_, tensor, state);
      }
  }

 private:
  const cp::StoredTensor* stored(const std::string& name, const std::string& kind) const {
    return cp::find(reader_.manifest(), name, kind);
  }

  void check_names() const {
    std::vector<std::string> wrong;
    std::map<std::pair<std::string, std::string>, Shape> wanted;
    for (const auto& [name, shape] : module_.parameters) wanted[{name, cp::kWeight}] = shape;
    for (const NamedTensor& buffer : module_.buffers) wanted[{buffer.name, kBuffer}] = buffer.value.sizes().vec();
    for (const auto& [key, shape] : wanted) {
      const cp::StoredTensor* tensor = stored(key.first, key.second);
      if (tensor == nullptr && numel(shape) > 0)
        wrong.push_back(text(key.first, " (", key.second, ") is not in the checkpoint"));
      else if (tensor != nullptr && tensor->shape != shape)
        wrong.push_back(text(key.first, " (", key.second, ") has shape ", tuple_text(tensor->shape),
                             " in the checkpoint, ", tuple_text(shape), " in the module"));
    }
    for (const cp::StoredTensor& tensor : reader_.manifest().tensors)
      if ((tensor.kind == cp::kWeight || tensor.kind == kBuffer) && !wanted.contains({tensor.name, tensor.kind}))
        wrong.push_back(text(tensor.name, " (", tensor.kind, ") of the checkpoint has no place in the module"));
    cp::require_fit(reader_.shown(), wrong, "the module that the checkpoint was made with");
  }

  void check_states() const {
    const auto saved = reader_.manifest().config.find(kOptimizerKey);
    require<CheckpointError>(saved != reader_.manifest().config.end(), reader_.shown(), ": holds no optimizer states",
                             "\n  fix: load it without an optimizer");
    const std::string own = optimizer_name(*optimizer_);
    require<CheckpointError>(saved->second == own, reader_.shown(), ": its optimizer states are of ", saved->second,
                             ", the optimizer is ", own, "\n  fix: the same optimizer, or load it without one");
    std::vector<std::string> wrong;
    const std::vector<std::string> names = state_names(*optimizer_);
    for (const cp::StoredTensor& tensor : reader_.manifest().tensors) {
      if (tensor.kind == cp::kWeight || tensor.kind == kBuffer || tensor.kind == kStep) continue;
      if (std::ranges::find(names, tensor.kind) == names.end())
        wrong.push_back(text(tensor.name, " (", tensor.kind, "): the optimizer has no such state"));
    }
    // All states of a parameter, or none: it was not updated yet.
    for (const auto& [name, shape] : module_.parameters) {
      const auto is_missing = [&, &of = name](const std::string& kind) { return stored(of, kind) == nullptr; };
      if (std::ranges::all_of(names, is_missing)) continue;
      for (const std::string& kind : names)
        if (is_missing(kind)) wrong.push_back(text(name, " (", kind, ") is not in the checkpoint"));
    }
    cp::require_fit(reader_.shown(), wrong, "the options that the optimizer had: amsgrad, momentum");
  }

  /// Elements `range` of a tensor, into a flat tensor from `offset` on.
  void read_into(const cp::StoredTensor& tensor, const Shape& shape, Range range, const at::Tensor& flat,
                 std::int64_t offset) const {
    const at::ScalarType dtype = dtype_in_memory(reader_.shown(), tensor);
    for (const Box& box : boxes_of_range(shape, range)) {
      const auto count = static_cast<std::int64_t>(cp::bytes_of_box(box, SafetensorsDtype::U8));
      const at::Tensor values = at::empty({count}, dtype);
      reader_.read(tensor, box, {static_cast<std::byte*>(values.mutable_data_ptr()), values.nbytes()});
      flat.narrow(0, offset, count).copy_(values);
      offset += count;
    }
  }

  void read() {
    for (const NamedTensor& buffer : module_.buffers) {
      const at::Tensor flat = at::empty({buffer.value.numel()}, buffer.value.scalar_type());
      if (flat.numel() > 0)
        read_into(*stored(buffer.name, kBuffer), buffer.value.sizes().vec(), {0, flat.numel()}, flat, 0);
      values_.emplace_back(buffer.value, flat);
    }
    for (const KeptTensor& kept : module_.kept) {
      values_.emplace_back(kept.tensor, read_kept(kept, cp::kWeight));
      if (optimizer_) states_.emplace_back(kept.tensor, read_state(kept));
    }
  }

  /// Padding, and what the checkpoint does not hold, is zero.
  at::Tensor read_kept(const KeptTensor& kept, const std::string& kind) const {
    const at::Tensor flat = at::zeros({kept.tensor.numel()}, kept.tensor.scalar_type());
    for (const KeptTensor::Part& part : kept.parts)
      if (const cp::StoredTensor* tensor = stored(part.name, kind))
        read_into(*tensor, part.sizes, part.range, flat, part.offset);
    return flat;
  }

  /// A parameter that was never updated has none; beside others in one tensor its states are zero.
  std::optional<TensorState> read_state(const KeptTensor& kept) const {
    TensorState state;
    for (const std::string& kind : state_names(*optimizer_))
      if (std::ranges::any_of(kept.parts, [&](const auto& part) { return stored(part.name, kind) != nullptr; }))
        state.tensors[kind] = read_kept(kept, kind);
    if (state.tensors.empty()) return std::nullopt;
    std::string first;
    for (const KeptTensor::Part& part : kept.parts) {
      const cp::StoredTensor* tensor = stored(part.name, kStep);
      if (tensor == nullptr) continue;
      const at::Tensor step = at::zeros({1}, at::kLong);
      read_into(*tensor, {1}, {0, 1}, step, 0);
      const auto steps = step.item<std::int64_t>();
      require<CheckpointError>(!state.step || *state.step == steps, reader_.shown(), ": ", first, " had ",
                               state.step.value_or(0), " updates and ", part.name, " ", steps,
                               ": a unit that holds both has one number",
                               "\n  fix: load it into a module that is not sharded, or sharded by units without both");
      if (!state.step) first = part.name;
      state.step = steps;
    }
    return state;
  }

  const cp::Reader reader_;
  const ModuleParts& module_;
  torch::optim::Optimizer* const optimizer_;
  std::vector<std::pair<at::Tensor, at::Tensor>> values_{};                  // a tensor and its new elements
  std::vector<std::pair<at::Tensor, std::optional<TensorState>>> states_{};  // flat
};

}  // namespace

fs::path save_checkpoint(const fs::path& folder, std::int64_t step, const CheckpointedModule& what,
                         const SaveCheckpointOptions& options) {
  const at::NoGradGuard no_grad;
  Group& group = what.group();
  const PatientCalls patient(group);
  const ModuleParts module = parts_of(what);
  cp::SaveTarget target{.folder = folder, .step = step, .id = {}};
  std::unique_ptr<files::FolderLock> lock;
  std::vector<WrittenSlice> slices;
  Failure failure = failure_of([&] {
    require<ConfigError>(step >= 0, "save_checkpoint: step ", step, ": must be at least 0");
    if (options.optimizer) {
      optimizer_name(*options.optimizer);
      check_optimizer_of(module, *options.optimizer);
    }
    slices = slices_of_rank(module, options.optimizer, group);
    if (group.rank() != 0) return;
    target.id = hex_digits(random_bytes(16));
    const int made = files::real_fs().make_folder(folder);
    require<CheckpointError>(made == 0 || made == EEXIST, folder.string(), ": could not be made: ", errno_text(made));
    lock = std::make_unique<files::FolderLock>(folder);
    cp::remove_unfinished(files::real_fs(), folder);
    cp::begin_save(files::real_fs(), target);
  });
  target.id = agree_on(group, module.device, failure, target.id)[0];

  std::string shard;
  failure = failure_of([&] { shard = write_rank_file(slices, target, group.rank()); });
  std::vector<std::string> shards;
  try {
    shards = agree_on(group, module.device, failure, shard);
  } catch (...) {
    if (group.rank() == 0) cp::abandon(files::real_fs(), target);
    throw;
  }
  failure = failure_of([&] {
    if (group.rank() != 0) return;
    try {
      cp::Manifest manifest{.id = target.id,
                            .program = "trireme library",
                            .time = utc_text(std::chrono::system_clock::now()),
                            .layout = {{"world", group.size()}}};
      if (options.optimizer) manifest.config[kOptimizerKey] = optimizer_name(*options.optimizer);
      manifest.training.step = step;
      std::vector<cp::Manifest> parts;
      for (const std::string& json : shards) parts.push_back(cp::parse_shard(json, "a shard"));
      cp::merge_shards(manifest, parts);
      lock->check();
      cp::commit(files::real_fs(), target, std::move(manifest), {});
    } catch (...) {
      cp::abandon(files::real_fs(), target);
      throw;
    }
    group.recorder().checkpoint_committed();
    if (options.keep > 0) cp::prune(files::real_fs(), folder, options.keep);
  });
  agree_on(group, module.device, failure);
  return target.final();
}

std::int64_t load_checkpoint(const fs::path& path, const CheckpointedModule& what,
                             const LoadCheckpointOptions& options) {
  const at::NoGradGuard no_grad;
  Group& group = what.group();
  const PatientCalls patient(group);
  const ModuleParts module = parts_of(what);
  fs::path chosen;
  // One rank chooses: another one might see a newer checkpoint.
  Failure failure = failure_of([&] {
    if (options.optimizer) check_optimizer_of(module, *options.optimizer);
    if (group.rank() == 0) chosen = chosen_checkpoint(path);
  });
  chosen = agree_on(group, module.device, failure, chosen.string())[0];
  std::unique_ptr<Loading> loading;
  failure = failure_of([&] { loading = std::make_unique<Loading>(chosen, module, options.optimizer); });
  agree_on(group, module.device, failure);
  loading->apply();
  return loading->step();
}

}  // namespace trireme
