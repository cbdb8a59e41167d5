#pragma once
#include <cstddef>
#include <cstring>

namespace trireme {

/// std::memcpy, also for nothing: its pointers must not be null even then, and those of empty containers and tensors
/// are.
inline void copy_bytes(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace trireme
