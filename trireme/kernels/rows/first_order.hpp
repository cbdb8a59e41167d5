#pragma once
// Guard for backward functions that do not support double backward.
#include <c10/core/GradMode.h>

#include "trireme/base/error.hpp"

namespace trireme::kernels {

/// Throws on double backward (create_graph), which would silently give wrong gradients.
inline void require_first_order(const char* what) {
  require(!c10::GradMode::is_enabled(), what,
          ": gradients of gradients (backward with create_graph) are not there; use the operators of torch instead");
}

}  // namespace trireme::kernels
