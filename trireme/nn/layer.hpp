#pragma once
// A torch::nn::Module whose parameters say which part of what they are. Everything that must know reads it here:
// initial values, sums of gradients, norms, ZeRO, checkpoints.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "trireme/layout/param_spec.hpp"
#include "trireme/nn/parallel.hpp"

namespace trireme {

/// A constructor draws no random number and knows no full name: names and values come when the tree is finished.
class Layer : public torch::nn::Module {
 public:
  /// The spec of a parameter declared here; nullptr if there is none of this name.
  const ParamSpec* spec(const std::string& local_name) const;
  /// The full name in the finished tree, such as "layers.3.attention"; set by set_paths.
  const std::string& path() const { return path_; }

 protected:
  /// This rank's part of a parameter, uninitialised, on the device and in the dtype of the moment (init_scope.hpp).
  at::Tensor declare(const std::string& local_name, ParamSpec spec, const Parallel& parallel);

 private:
  friend void set_paths(torch::nn::Module& root, const std::string& prefix);
  std::map<std::string, ParamSpec> specs_;
  std::string path_;
};

/// Tells every Layer below `root` its name.
void set_paths(torch::nn::Module& root, const std::string& prefix = "");

/// A parameter by its full name. Of an ordinary module: replicated, its shape the whole.
struct Param {
  std::string name;
  at::Tensor value;  // this rank's part
  ParamSpec spec;
  bool declared = true;  // by a Layer; else of an ordinary module
};

/// All parameters below `root`, in the order of their registration, those of a module before those of its children.
std::vector<Param> params_of(const torch::nn::Module& root);

/// The part of a tensor that the box names, as a view.
at::Tensor box_view(at::Tensor tensor, const Box& box);

}  // namespace trireme
