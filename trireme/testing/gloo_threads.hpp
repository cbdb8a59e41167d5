#pragma once
// Ranks as threads that share a store in memory, over Gloo or shared memory: the real transports without processes. For
// tests.
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "trireme/comm/backends/c10d_world.hpp"

namespace trireme {

inline void run_c10d_threads(int size, const std::function<void(World&)>& body, const CommOptions& options,
                             const c10::intrusive_ptr<c10d::Store>& store, bool shares_memory) {
  std::mutex mutex;
  std::exception_ptr first;
  {
    std::vector<std::jthread> ranks;
    for (int r = 0; r < size; ++r)
      ranks.emplace_back([&, r] {
        try {
          C10dWorld world({.store = store, .rank = r, .size = size, .shares_memory = shares_memory}, options);
          body(world);
        } catch (...) {
          const std::scoped_lock lock(mutex);
          if (!first) first = std::current_exception();
        }
      });
  }
  if (first) std::rethrow_exception(first);
}

inline void run_gloo_threads(int size, const std::function<void(World&)>& body, const CommOptions& options = {},
                             const c10::intrusive_ptr<c10d::Store>& store = c10::make_intrusive<c10d::HashStore>()) {
  run_c10d_threads(size, body, options, store, /*shares_memory=*/false);
}

inline void run_shared_memory_threads(
    int size, const std::function<void(World&)>& body, const CommOptions& options = {},
    const c10::intrusive_ptr<c10d::Store>& store = c10::make_intrusive<c10d::HashStore>()) {
  run_c10d_threads(size, body, options, store, /*shares_memory=*/true);
}

}  // namespace trireme
