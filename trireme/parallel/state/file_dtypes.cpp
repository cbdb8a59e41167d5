#include "trireme/parallel/state/file_dtypes.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

using files::SafetensorsDtype;

constexpr std::array<std::pair<at::ScalarType, SafetensorsDtype>, 10> kFileDtypes{
    {{at::kDouble, SafetensorsDtype::F64},
     {at::kFloat, SafetensorsDtype::F32},
     {at::kHalf, SafetensorsDtype::F16},
     {at::kBFloat16, SafetensorsDtype::BF16},
     {at::kComplexFloat, SafetensorsDtype::C64},
     {at::kLong, SafetensorsDtype::I64},
     {at::kInt, SafetensorsDtype::I32},
     {at::kShort, SafetensorsDtype::I16},
     {at::kByte, SafetensorsDtype::U8},
     {at::kBool, SafetensorsDtype::BOOL}}};

}  // namespace

std::optional<SafetensorsDtype> find_file_dtype(at::ScalarType dtype) {
  for (const auto& [ours, theirs] : kFileDtypes)
    if (ours == dtype) return theirs;
  return std::nullopt;
}

std::optional<at::ScalarType> find_scalar_type(SafetensorsDtype dtype) {
  for (const auto& [ours, theirs] : kFileDtypes)
    if (theirs == dtype) return ours;
  return std::nullopt;
}

SafetensorsDtype file_dtype(at::ScalarType dtype) {
  const std::optional<SafetensorsDtype> found = find_file_dtype(dtype);
  require(found.has_value(), "a checkpoint of tensors of ", dtype);
  return *found;
}

at::ScalarType scalar_type(SafetensorsDtype dtype) {
  const std::optional<at::ScalarType> found = find_scalar_type(dtype);
  require(found.has_value(), "a tensor of ", files::name(dtype));
  return *found;
}

}  // namespace trireme
