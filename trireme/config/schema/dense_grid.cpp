#include "trireme/config/schema/dense_grid.hpp"

#include <algorithm>

namespace trireme::config {

Grid dense_grid(const ParallelismConfig& p) {
  const auto degree = [](std::int64_t value) { return static_cast<int>(value); };
  return Grid::dense(
      {.pp = degree(p.pp), .dp = degree(std::max<std::int64_t>(1, p.dp)), .cp = degree(p.cp), .tp = degree(p.tp)},
      p.order);
}

}  // namespace trireme::config
