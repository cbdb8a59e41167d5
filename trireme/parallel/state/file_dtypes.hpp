#pragma once
// The dtypes of tensors in checkpoints.
#include <optional>

#include <c10/core/ScalarType.h>

#include "trireme/files/safetensors_dtype.hpp"

namespace trireme {

/// nullopt: checkpoints do not hold it.
std::optional<files::SafetensorsDtype> find_file_dtype(at::ScalarType dtype);
/// nullopt: libtorch does not have it.
std::optional<at::ScalarType> find_scalar_type(files::SafetensorsDtype dtype);

/// The same where there must be one; InternalError.
files::SafetensorsDtype file_dtype(at::ScalarType dtype);
at::ScalarType scalar_type(files::SafetensorsDtype dtype);

}  // namespace trireme
