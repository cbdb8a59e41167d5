#pragma once
// Waiting for work that a thread of each rank does, however long it takes.
#include <chrono>
#include <future>

#include <ATen/ops/full.h>

#include "trireme/comm/group.hpp"

namespace trireme {

/// Collective: until the work of all ranks is over. In short turns: a rank whose disk takes minutes must not look like
/// one that hangs. The group must take host tensors.
template <class Future>
void wait_together(Group& group, const Future& work) {
  constexpr std::chrono::milliseconds kTurn(200);
  for (std::int64_t waiting = 1; waiting > 0;) {
    const bool is_over = work.wait_for(kTurn) == std::future_status::ready;
    waiting = group.all_reduce_(at::full({1}, is_over ? 0 : 1, at::kLong)).wait().template item<std::int64_t>();
  }
}

}  // namespace trireme
