#include "trireme/parallel/context/ulysses.hpp"

#include <vector>

#include <ATen/ops/tensor.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/differentiable.hpp"

namespace trireme {

HeadCounts heads_per_rank(const HeadCounts& heads, int ranks) {
  require<ConfigError>(heads.queries % ranks == 0, "attention: ", heads.queries, " heads cannot be shared by ", ranks,
                       " ranks\n  fix: a cp that divides them, or parallelism.cp_method = \"ring\"");
  const std::int64_t queries = heads.queries / ranks;
  if (heads.keys % ranks == 0) return {queries, heads.keys / ranks};
  // The query heads of a rank use one KV head, or each gets its own copy.
  return {queries, ranks % heads.keys == 0 ? 1 : queries};
}

at::Tensor exchange_tokens_for_heads(const at::Tensor& heads_bsnd, const HeadCounts& heads, Group& group) {
  if (group.size() == 1) return heads_bsnd;
  const HeadCounts each = heads_per_rank(heads, group.size());
  const std::int64_t queries_per_key = heads.queries / heads.keys;
  std::vector<std::int64_t> order;  // the heads for rank 0, then those for rank 1, ...
  for (int rank = 0; rank < group.size(); ++rank) {
    const std::int64_t first = rank * each.queries;
    for (std::int64_t i = 0; i < each.queries; ++i) order.push_back(first + i);
    for (const std::int64_t values : {std::int64_t{0}, heads.keys})
      for (std::int64_t i = 0; i < each.keys; ++i)
        order.push_back(heads.queries + values + (first + i * (each.queries / each.keys)) / queries_per_key);
  }
  const at::Tensor index = at::tensor(order, at::kLong).to(heads_bsnd.device(), /*non_blocking=*/true);
  return differentiable::all_to_all(heads_bsnd.index_select(2, index), 2, 1, group);
}

at::Tensor exchange_heads_for_tokens(const at::Tensor& out_bsnd, Group& group) {
  return group.size() == 1 ? out_bsnd : differentiable::all_to_all(out_bsnd, 1, 2, group);
}

}  // namespace trireme
