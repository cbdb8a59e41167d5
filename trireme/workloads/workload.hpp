#pragma once
// What `trireme bench fit` trains: a model and its data, by name.
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/container/sequential.h>

namespace trireme::workloads {

struct Workload {
  std::string name;
  torch::nn::Sequential model;  // each child maps one tensor to one tensor
  at::Tensor train_x, train_y, validation_x, validation_y;
  int classes = 0;
};

/// orbit5k, orbit5kbig, bert, bertbig.
const std::vector<std::string>& workload_names();

/// `samples` for training, and a quarter as many (at least one per class) for validation, all on the CPU. Data and
/// initial weights are a pure function of the arguments: every rank that asks gets the same. ConfigError for an unknown
/// name, or fewer samples than classes.
Workload make_workload(const std::string& name, std::int64_t samples, std::uint64_t seed);

}  // namespace trireme::workloads
