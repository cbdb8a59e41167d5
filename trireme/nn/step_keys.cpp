#include "trireme/nn/step_keys.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "trireme/base/error.hpp"
#include "trireme/base/philox.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kSlots = 4096;  // more than layers with dropout: the memory must not move

}  // namespace

StepKeys::StepKeys(at::Device device) : device_(at::zeros({kSlots}, at::TensorOptions(at::kLong).device(device))) {}

const std::int64_t* StepKeys::slot(const std::string& path) {
  const auto [found, is_new] = slots_.emplace(path, static_cast<std::int64_t>(slots_.size()));
  require(found->second < kSlots, "more than ", kSlots, " layers with dropout in one CUDA graph");
  return device_.const_data_ptr<std::int64_t>() + found->second;
}

void StepKeys::set_step(std::int64_t step) {
  if (slots_.empty()) return;
  const auto count = static_cast<std::int64_t>(slots_.size());
  const at::Tensor host = at::empty({count}, at::TensorOptions(at::kLong).pinned_memory(true));
  for (const auto& [path, slot] : slots_)
    host.mutable_data_ptr<std::int64_t>()[slot] = static_cast<std::int64_t>(dropout_purpose(path, step));
  device_.narrow(0, 0, count).copy_(host, /*non_blocking=*/true);
}

std::uint64_t dropout_purpose(const std::string& path, std::int64_t step) {
  return fnv1a(text("dropout ", path, " step ", step));
}

}  // namespace trireme
