#pragma once
// The dtypes of a run: names in the config, and how "auto" is resolved for a device.
#include <string>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "trireme/config/schema/config.hpp"

namespace trireme {

/// ConfigError for an unknown name.
at::ScalarType scalar_type(const std::string& name);
std::string dtype_word(at::ScalarType dtype);  // "bfloat16"

/// Replaces "auto" in the config: bfloat16 if `device` supports it natively, else float32; and sets precision.param.
void resolve_dtypes(Config& config, at::Device device);

}  // namespace trireme
