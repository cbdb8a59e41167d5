#pragma once
// Sums partial gradients over the model-parallel ranks: of norm weights with sequence parallelism, and of KV heads that
// several ranks hold. ParamSpec::partial alone decides which gradients are partial.
#include <functional>
#include <vector>

#include "trireme/comm/param_mesh.hpp"
#include "trireme/nn/layer.hpp"

namespace trireme {

/// What to sum over which ranks for a list of parameters, determined once.
class PartialSums {
 public:
  PartialSums() = default;
  /// Creates the groups that the mesh does not have yet: all ranks make the same lists in the same order.
  PartialSums(const std::vector<const ParamSpec*>& specs, const ParamMesh& mesh);

  /// One all_reduce per group. `gradient(i)`: of parameter i of the list, with its local shape; only asked if partial.
  /// bf16 and f16 are summed in f32.
  void sum(const std::function<at::Tensor(std::size_t)>& gradient) const;

 private:
  struct Part {
    std::size_t param = 0;
    Box box;
  };
  struct Sum {
    Group* group = nullptr;
    std::vector<Part> parts;
  };
  std::vector<Sum> sums_;
};

/// Sums the partial ones among the .grad of `params`: once, after the last backward of a step (a second call would sum
/// the sums), before the reduction over dp and cp. Parameters of such a group without a gradient take part with zeros,
/// so that every rank makes the same calls.
void sum_partial_gradients(const std::vector<Param>& params, const ParamMesh& mesh);

}  // namespace trireme
