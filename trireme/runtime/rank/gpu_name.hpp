#pragma once
#include <string>

namespace trireme {

/// Of a visible GPU, as CUDA names it: "NVIDIA H200". Asks the driver, without CUDA's headers; "" if there is none.
std::string gpu_name(int index);

}  // namespace trireme
