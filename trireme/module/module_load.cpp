#include "trireme/module/module_load.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/commit.hpp"
#include "trireme/checkpoint/model_source.hpp"
#include "trireme/checkpoint/reader.hpp"
#include "trireme/layout/flat_boxes.hpp"
#include "trireme/module/optimizer_states.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
namespace cp = checkpoint;
using files::SafetensorsDtype;

}  // namespace

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

class ModuleLoad::Core {
 public:
  Core(const fs::path& path, const ModuleParts& module, torch::optim::Optimizer* optimizer)
      : reader_(path), module_(module), optimizer_(optimizer) {
    check_names();
    if (optimizer_) check_states();
    read();
  }

  std::int64_t step() const { return reader_.manifest().training.step; }

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
    for (const NamedTensor& buffer : module_.buffers) wanted[{buffer.name, kBufferKind}] = buffer.value.sizes().vec();
    for (const auto& [key, shape] : wanted) {
      const cp::StoredTensor* tensor = stored(key.first, key.second);
      if (tensor == nullptr && numel(shape) > 0)
        wrong.push_back(text(key.first, " (", key.second, ") is not in the checkpoint"));
      else if (tensor != nullptr && tensor->shape != shape)
        wrong.push_back(text(key.first, " (", key.second, ") has shape ", tuple_text(tensor->shape),
                             " in the checkpoint, ", tuple_text(shape), " in the module"));
    }
    for (const cp::StoredTensor& tensor : reader_.manifest().tensors)
      if ((tensor.kind == cp::kWeight || tensor.kind == kBufferKind) && !wanted.contains({tensor.name, tensor.kind}))
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
    const std::vector<std::string> known = all_state_names(*optimizer_);
    for (const cp::StoredTensor& tensor : reader_.manifest().tensors) {
      if (tensor.kind == cp::kWeight || tensor.kind == kBufferKind || tensor.kind == kStepKind) continue;
      if (std::ranges::find(known, tensor.kind) == known.end())
        wrong.push_back(text(tensor.name, " (", tensor.kind, "): the optimizer has no such state"));
    }
    // What is on other ranks only, they check.
    for (const KeptTensor& kept : module_.kept)
      if (const auto names = state_names(*optimizer_, kept.tensor))
        for (const KeptTensor::Part& part : kept.parts) check_states_of(part.name, *names, known, wrong);
    cp::require_fit(reader_.shown(), wrong, "the options that the optimizer had: amsgrad, momentum");
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
        read_into(*stored(buffer.name, kBufferKind), buffer.value.sizes().vec(), {0, flat.numel()}, flat, 0);
      values_.emplace_back(buffer.value, flat);
    }
    for (const KeptTensor& kept : module_.kept) {
      values_.emplace_back(kept.tensor, read_kept(kept, cp::kWeight));
      if (!optimizer_) continue;
      if (const auto names = state_names(*optimizer_, kept.tensor))
        states_.emplace_back(kept.tensor, read_state(kept, *names));
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
  std::optional<TensorState> read_state(const KeptTensor& kept, const std::vector<std::string>& names) const {
    TensorState state;
    for (const std::string& kind : names)
      if (std::ranges::any_of(kept.parts, [&](const auto& part) { return stored(part.name, kind) != nullptr; }))
        state.tensors[kind] = read_kept(kept, kind);
    if (state.tensors.empty()) return std::nullopt;
    std::string first;
    for (const KeptTensor::Part& part : kept.parts) {
      const cp::StoredTensor* tensor = stored(part.name, kStepKind);
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

ModuleLoad::ModuleLoad(const fs::path& path, const ModuleParts& module, torch::optim::Optimizer* optimizer)
    : core_(std::make_unique<Core>(path, module, optimizer)) {}
ModuleLoad::~ModuleLoad() = default;
std::int64_t ModuleLoad::step() const { return core_->step(); }
void ModuleLoad::apply() { core_->apply(); }

}  // namespace trireme
