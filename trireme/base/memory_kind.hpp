#pragma once
// Tags allocations with their purpose, so that predicted memory can be compared with measured memory.
#include <array>
#include <cstddef>

namespace trireme {

enum class MemoryKind { other, weights, gradients, master, states, activations };
inline constexpr std::size_t kMemoryKinds = 6;

inline const char* name(MemoryKind kind) {
  constexpr std::array kNames{"other", "weights", "gradients", "master", "states", "activations"};
  return kNames[static_cast<std::size_t>(kind)];
}

/// While in scope, tensors allocated by this thread count as this kind (runtime/memory/counted_memory.hpp). Scopes
/// nest.
class [[nodiscard]] MemoryScope {
 public:
  explicit MemoryScope(MemoryKind kind) : outer_(current()) { current() = kind; }
  ~MemoryScope() { current() = outer_; }
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

  static MemoryKind& current() {
    thread_local MemoryKind kind = MemoryKind::other;
    return kind;
  }

 private:
  const MemoryKind outer_;
};

}  // namespace trireme
