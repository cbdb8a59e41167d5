#pragma once
// A torch::nn::Module whose parameters say which part of what they are. Everything that must know reads it here:
// initial values, sums of gradients, norms, ZeRO, checkpoints.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "trireme/layout/grid.hpp"
#include "trireme/layout/placement.hpp"
#include "trireme/nn/tensor_parallel.hpp"

namespace trireme {

/// What a parameter starts as; init.hpp says which numbers a scheme takes for it.
enum class Fill { zeros, ones, bias, weight, residual_weight, embedding };

struct ParamSpec {
  Shape shape;  // of the whole parameter
  Placement placement = {};
  /// Axes along which ranks keep the same values but have only a part of the gradient each, because they see other
  /// tokens or other heads: the weight of a norm in sequence parallel. The gradient is their sum (gradients.hpp). Along
  /// other axes that do not cut it, the gradient is the same on all ranks by construction; dp and cp go without saying.
  AxisSet partial = {};
  Fill fill = Fill::weight;
  int64_t fan_in = 0;  // inputs of an output, for schemes that ask; 0: the last dim (a bias has none of its own)
  std::optional<TiedInfo> tie = {};
};

/// A constructor draws no random number and knows no full name: names and values come when the tree is finished.
class Layer : public torch::nn::Module {
 public:
  /// The spec of a parameter declared here; nullptr if there is none of this name.
  const ParamSpec* spec(const std::string& local_name) const;
  /// The full name in the finished tree, such as "layers.3.attention"; set by set_paths.
  const std::string& path() const { return path_; }

 protected:
  /// This rank's part of a parameter, uninitialised, on the device and in the dtype of the moment (init_scope.hpp).
  at::Tensor declare(const std::string& local_name, ParamSpec spec, const Group& tp);

 private:
  friend void set_paths(torch::nn::Module& root, const std::string& prefix);
  std::map<std::string, ParamSpec> specs_;
  std::string path_;
};

/// The grid of a layer alone: only tp cuts.
Grid tp_grid(const Group& tp);

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
