#pragma once
// Sums the gradients of parameters that several pipeline chunks share: an embedding that is also the head.
#include <vector>

#include "trireme/parallel/zero/grad_reducer.hpp"

namespace trireme {

// Note [Order of the sums of a tied gradient]
// Each copy is first reduced over the ranks that see other tokens, to this rank's shard, and then the shards of the
// copies are added. Every copy is alone in its bucket (parallel/zero/partition.hpp), so equal shards face each other,
// and only 1 / shards of the gradient travels between the pipeline stages. All copies get the same bits, and stay
// equal.
class TiedSums {
 public:
  TiedSums() = default;
  /// Collective over the ranks that share a parameter: creates their group.
  TiedSums(const std::vector<GradReducer*>& reducers, Mesh& mesh);

  /// After all reductions of a step have finished.
  void sum() const;

 private:
  struct Copy {
    const GradReducer* reducer;
    std::size_t bucket;
  };
  struct Tie {
    std::string name;
    Group* group = nullptr;    // of the ranks that share it; nullptr: all copies are on this rank
    std::vector<Copy> copies;  // of this rank
  };
  std::vector<Tie> ties_;
};

}  // namespace trireme
