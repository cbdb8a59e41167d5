#include "trireme/config/schema/dense_grid.hpp"

#include <algorithm>

namespace trireme::config {

Grid dense_grid(const ParallelismConfig& p) {
  const auto degree = [](std::int64_t value) { return static_cast<int>(value); };
  return Grid::dense(
      {.pp = degree(p.pp), .dp = degree(std::max<std::int64_t>(1, p.dp)), .cp = degree(p.cp), .tp = degree(p.tp)},
      p.order);
}

std::optional<Grid> expert_grid(const ModelConfig& m, const ParallelismConfig& p) {
  if (m.num_local_experts == 0) return std::nullopt;
  return expert_view(dense_grid(p), static_cast<int>(p.ep), static_cast<int>(p.expert_tp));
}

ContextSplit context_split_of(const Config& c) {
  const ParallelismConfig& p = c.parallelism;
  const std::int64_t kv_heads = std::max<std::int64_t>(1, c.model.num_key_value_heads / p.tp);
  return context_split(parse_context_method(p.cp_method), static_cast<int>(p.cp), kv_heads);
}

}  // namespace trireme::config
