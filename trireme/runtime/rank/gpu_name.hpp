#pragma once
#include <string>

namespace trireme {

/// Of a visible GPU, as CUDA names it: "NVIDIA H200". Asks the driver, without CUDA's headers; "" if there is none.
std::string gpu_name(int index);

/// 32 hexadecimal digits that no other GPU, or instance of one, has, wherever it is seen from; "" if it is not known.
std::string gpu_uuid(int index);

}  // namespace trireme
