#pragma once
// Parallel loops on libtorch's thread pool.
#include <cstdint>

#include <c10/util/FunctionRef.h>

namespace trireme::kernels {

/// f(first, last) over parts of 0 ... count - 1. For why not at::parallel_for see parallel.cpp.
void over_parts(std::int64_t count, c10::function_ref<void(std::int64_t first, std::int64_t last)> f);

}  // namespace trireme::kernels
