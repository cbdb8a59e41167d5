#pragma once
// A torch::nn::Module that declares a ParamSpec for each of its parameters: shape, sharding and gradient sums.
// Initialization, gradient reduction, norms, ZeRO and checkpoints all read it from here.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "trireme/layout/param_spec.hpp"
#include "trireme/nn/parallel.hpp"

namespace trireme {

/// A constructor draws no random numbers and knows no full names: both are set when the module tree is complete.
class Layer : public torch::nn::Module {
 public:
  /// The spec of a parameter declared here; nullptr if there is none with this name.
  const ParamSpec* spec(const std::string& local_name) const;
  /// The product of the degrees of the axes that cut it, on the mesh that it was declared for: 1 if every rank has the
  /// whole parameter.
  int cut_degree(const std::string& local_name) const;
  /// The full name in the module tree, such as "layers.3.attention"; set by set_paths.
  const std::string& path() const { return path_; }

 protected:
  /// Registers this rank's shard of a parameter, uninitialized, with the current device and dtype (init_scope.hpp).
  at::Tensor declare(const std::string& local_name, ParamSpec spec, const Parallel& parallel);

 private:
  friend void set_paths(torch::nn::Module& root, const std::string& prefix);
  std::map<std::string, ParamSpec> specs_;
  std::map<std::string, int> cut_degrees_;
  std::string path_;
};

/// Sets the path of every Layer below `root`.
void set_paths(torch::nn::Module& root, const std::string& prefix = "");

/// A parameter with its full name. Parameters of modules that are not Layers are replicated.
struct Param {
  std::string name;
  at::Tensor value;  // this rank's shard
  ParamSpec spec;
  bool declared = true;  // by a Layer; false for other modules
  int cut_degree = 1;    // above 1: ranks have different parts of it (Layer::cut_degree)
};

/// All parameters below `root` in registration order, those of a module before those of its children.
std::vector<Param> params_of(const torch::nn::Module& root);

/// The part of a tensor inside the box, as a view.
at::Tensor box_view(at::Tensor tensor, const Box& box);

}  // namespace trireme
