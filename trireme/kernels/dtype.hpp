#pragma once
// Which dtype sums are made in.
#include <c10/core/ScalarType.h>

namespace trireme::kernels {

inline bool is_reduced(at::ScalarType dtype) { return dtype == at::kBFloat16 || dtype == at::kHalf; }

/// The dtype that sums of this one are made in: f64 for f64, else f32.
inline at::ScalarType wide_dtype(at::ScalarType dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

}  // namespace trireme::kernels
