#pragma once
// The element types (dtypes) of safetensors files.
#include <cstdint>
#include <optional>
#include <string_view>

namespace trireme::files {

enum class SafetensorsDtype : std::uint8_t {
  BOOL,
  F4,
  F6_E2M3,
  F6_E3M2,
  U8,
  I8,
  F8_E5M2,
  F8_E4M3,
  F8_E8M0,
  F8_E4M3FNUZ,
  F8_E5M2FNUZ,
  I16,
  U16,
  F16,
  BF16,
  I32,
  U32,
  F32,
  C64,
  F64,
  I64,
  U64,
};
const char* name(SafetensorsDtype dtype);
int bits(SafetensorsDtype dtype);  // per element: 4, 6, or whole bytes
std::optional<SafetensorsDtype> safetensors_dtype(std::string_view name);

}  // namespace trireme::files
