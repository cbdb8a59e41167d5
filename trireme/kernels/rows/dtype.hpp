#pragma once
// The accumulation dtype of sums.
#include <c10/core/ScalarType.h>

namespace trireme::kernels {

inline bool is_reduced(at::ScalarType dtype) { return dtype == at::kBFloat16 || dtype == at::kHalf; }

/// The dtype in which sums of this dtype are accumulated: f64 for f64, else f32.
inline at::ScalarType wide_dtype(at::ScalarType dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

}  // namespace trireme::kernels
