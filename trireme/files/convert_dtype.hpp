#pragma once
// Converts numbers between the floating-point dtypes of weights: F64, F32, F16 and BF16.
#include <cstddef>
#include <span>
#include <string_view>

#include "trireme/files/safetensors_dtype.hpp"

namespace trireme::files {

bool is_weight_dtype(SafetensorsDtype dtype);

/// "bfloat16", "float16", "float32", "float64": torch's names; ConfigError for others, which names `flag`.
SafetensorsDtype weight_dtype(std::string_view torch_name, std::string_view flag);
const char* torch_name(SafetensorsDtype dtype);

/// Rounds once, to nearest, ties to even, as IEEE 754 and torch do: beyond the range to infinity, below it to subnormal
/// numbers and zero. NaN stays NaN. The spans may be unaligned and hold as many elements; InternalError otherwise, and
/// for other dtypes.
void convert_dtype(SafetensorsDtype from, std::span<const std::byte> in, SafetensorsDtype to, std::span<std::byte> out);

}  // namespace trireme::files
