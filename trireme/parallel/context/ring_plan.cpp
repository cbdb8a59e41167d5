#include "trireme/parallel/context/ring_plan.hpp"

#include <algorithm>

#include <ATen/ops/empty.h>

namespace trireme {
namespace {

template <class Number>
at::Tensor on_device(const std::vector<Number>& numbers, at::ScalarType dtype, at::Device device) {
  const at::Tensor host =
      at::empty({static_cast<std::int64_t>(numbers.size())}, at::TensorOptions(dtype).pinned_memory(device.is_cuda()));
  std::ranges::copy(numbers, host.mutable_data_ptr<Number>());
  return host.to(device, /*non_blocking=*/true);
}

RingLaunch launch_of(const std::vector<AttentionRectangle>& rectangles, std::int64_t length, at::Device device) {
  RingLaunch out;
  out.pieces.causal = rectangles.front().causal;
  out.pieces.left = rectangles.front().left;
  std::vector<std::int64_t> queries, keys;
  const auto add = [](std::vector<std::int64_t>& rows, std::int64_t begin, Range indices) {
    for (std::int64_t i = indices.begin; i < indices.end; ++i) rows.push_back(begin + i);
  };
  for (const AttentionRectangle& one : rectangles) {
    add(queries, one.sample * length, one.queries);
    add(keys, one.sample * length, one.keys);
    out.pieces.query_ends.push_back(static_cast<std::int32_t>(queries.size()));
    out.pieces.key_ends.push_back(static_cast<std::int32_t>(keys.size()));
    out.pieces.longest_queries = std::max(out.pieces.longest_queries, one.queries.size());
    out.pieces.longest_keys = std::max(out.pieces.longest_keys, one.keys.size());
  }
  const auto bounds = [&](std::vector<std::int32_t> ends) {
    ends.insert(ends.begin(), 0);
    return on_device(ends, at::kInt, device);
  };
  out.pieces.query_bounds = bounds(out.pieces.query_ends);
  out.pieces.key_bounds = bounds(out.pieces.key_ends);
  out.query_rows = on_device(queries, at::kLong, device);
  out.key_rows = on_device(keys, at::kLong, device);
  return out;
}

}  // namespace

std::shared_ptr<const RingPlan> RingPlans::plan(CpSplit order, std::int64_t whole_length, int ranks, int rank,
                                                std::int64_t window, at::Device device) {
  std::shared_ptr<const RingPlan>& plan = by_window_[window];
  if (plan != nullptr) return plan;
  RingPlan made(static_cast<std::size_t>(ranks));
  const RingTokens tokens{order, whole_length, ranks, window, document_begins_};
  for (int other = 0; other < ranks; ++other)
    for (const auto& rectangles : attention_rectangles(tokens, rank, other))
      made[static_cast<std::size_t>(other)].push_back(launch_of(rectangles, whole_length / ranks, device));
  return plan = std::make_shared<const RingPlan>(std::move(made));
}

}  // namespace trireme
