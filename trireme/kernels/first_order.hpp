#pragma once
// For backwards that write numbers, not graphs.
#include <c10/core/GradMode.h>

#include "trireme/base/error.hpp"

namespace trireme::kernels {

/// Throws where somebody asks for gradients of gradients (backward with create_graph), which would silently be wrong.
inline void require_first_order(const char* what) {
  require(!c10::GradMode::is_enabled(), what,
          ": gradients of gradients (backward with create_graph) are not there; use the operators of torch instead");
}

}  // namespace trireme::kernels
