#pragma once
// The training of one rank of fit(). Only for fit.cpp.
#include <vector>

#include "trireme/comm/mesh.hpp"
#include "trireme/module/fit.hpp"

namespace trireme {

struct FitJob {
  const Dataset& train;
  const Dataset& validation;
  const FitLoss& loss;
  const OptimizerMaker& optimizer;
  const FitOptions& options;
  std::vector<at::Device> devices;
};

struct Trained {
  FitResult result;
  std::vector<NamedTensor> state;
};

/// The axis along which the ranks share the work.
Axis axis_of(const FitOptions& options);

/// Trains and validates; the whole state afterwards is the same on every rank.
Trained train_on_rank(Mesh& mesh, at::Device device, FitModel& model, const FitJob& job);

}  // namespace trireme
