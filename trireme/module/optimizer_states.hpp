#pragma once
// The states of torch's optimizers as tensors by name: Adam, AdamW, SGD, Adagrad and RMSprop.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <torch/optim/optimizer.h>

namespace trireme {

/// Of one tensor that an optimizer updates.
struct TensorState {
  std::map<std::string, at::Tensor> tensors;  // "exp_avg": of the sizes of the tensor
  std::optional<std::int64_t> step;           // of an optimizer that counts
};

/// "AdamW"; kOtherOptimizer for an optimizer whose states are not known here: it has none by name, only an archive.
inline constexpr const char* kOtherOptimizer = "other";
std::string optimizer_name(const torch::optim::Optimizer& optimizer);
/// The states that it has of a tensor once it has updated it, by the options of the tensor's own group. nullopt: the
/// tensor is in no group, as a frozen one.
std::optional<std::vector<std::string>> state_names(const torch::optim::Optimizer& optimizer, const at::Tensor& tensor);
/// The states that it can have, whatever its options.
std::vector<std::string> all_state_names(const torch::optim::Optimizer& optimizer);

/// nullopt: it has not updated the tensor yet.
std::optional<TensorState> get_state(const torch::optim::Optimizer& optimizer, const at::Tensor& tensor);
/// nullopt: as if it had not updated the tensor yet. Nothing for a tensor that is in no group, such as a frozen one.
void set_state(torch::optim::Optimizer& optimizer, const at::Tensor& tensor, const std::optional<TensorState>& state);

/// What optimizer.save() writes, as bytes.
std::string archive_of(const torch::optim::Optimizer& optimizer);
void load_archive(torch::optim::Optimizer& optimizer, const std::string& bytes);

}  // namespace trireme
