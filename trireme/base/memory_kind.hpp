#pragma once
// What memory is for, said where it is asked for: so that what was predicted can be held against what is there.
#include <array>
#include <cstddef>

namespace trireme {

enum class MemoryKind { other, weights, gradients, master, states, activations };
inline constexpr std::size_t kMemoryKinds = 6;

inline const char* name(MemoryKind kind) {
  constexpr std::array kNames{"other", "weights", "gradients", "master", "states", "activations"};
  return kNames[static_cast<std::size_t>(kind)];
}

/// While it lives, tensors that this thread makes count as of this kind (runtime/counted_memory.hpp). Scopes nest.
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
