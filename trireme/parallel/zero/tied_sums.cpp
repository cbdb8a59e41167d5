#include "trireme/parallel/zero/tied_sums.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"

namespace trireme {

TiedSums::TiedSums(const std::vector<GradReducer*>& reducers, Mesh& mesh) {
  for (const GradReducer* reducer : reducers) {
    const Partition& partition = reducer->partition();
    for (std::size_t i = 0; i < partition.params().size(); ++i) {
      const Param& param = partition.params()[i];
      if (!param.spec.tie || !param.spec.tie->reduce_op) continue;
      require(param.spec.tie->reduce_op == ReduceOp::sum, param.name, ": tied gradients are summed, not reduced by ",
              name(*param.spec.tie->reduce_op));
      const std::size_t bucket = partition.bucket_of(i);
      require(partition.bucket(bucket).slots.size() == 1, param.name, " is tied and not alone in its bucket");
      auto tie = std::ranges::find(ties_, param.spec.tie->name, &Tie::name);
      if (tie == ties_.end()) {
        const std::vector<int>& ranks = param.spec.tie->global_ranks;
        tie = ties_.insert(ties_.end(),
                           {param.spec.tie->name, ranks.size() > 1 ? &mesh.group_of_ranks(ranks) : nullptr, {}});
      }
      tie->copies.push_back({reducer, bucket});
    }
  }
}

void TiedSums::sum() const {
  const at::NoGradGuard no_grad;
  for (const Tie& tie : ties_) {
    at::Tensor total = tie.copies[0].reducer->shard(tie.copies[0].bucket);
    for (std::size_t i = 1; i < tie.copies.size(); ++i) total.add_(tie.copies[i].reducer->shard(tie.copies[i].bucket));
    if (tie.group != nullptr) total.copy_(tie.group->all_reduce(total).wait());
    for (std::size_t i = 1; i < tie.copies.size(); ++i) tie.copies[i].reducer->shard(tie.copies[i].bucket).copy_(total);
  }
}

}  // namespace trireme
