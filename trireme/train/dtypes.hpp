#pragma once
// The dtypes of a run: names of the config, and what "auto" becomes on a device.
#include <string>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "trireme/config/schema/config.hpp"

namespace trireme {

/// ConfigError for a name that is none.
at::ScalarType scalar_type(const std::string& name);
std::string dtype_word(at::ScalarType dtype);  // "bfloat16"

/// Writes into the config what "auto" stands for: bfloat16 where `device` multiplies it natively, else float32; and
/// gives precision.param its value.
void resolve_dtypes(Config& config, at::Device device);

}  // namespace trireme
