#include "trireme/runtime/rank/gpu_name.hpp"

#include <array>

#include <dlfcn.h>

namespace trireme {

std::string gpu_name(int index) {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);  // stays loaded: CUDA uses it too
  if (driver == nullptr) return "";
  const auto init = reinterpret_cast<int (*)(unsigned)>(::dlsym(driver, "cuInit"));
  const auto device_of = reinterpret_cast<int (*)(int*, int)>(::dlsym(driver, "cuDeviceGet"));
  const auto name_of = reinterpret_cast<int (*)(char*, int, int)>(::dlsym(driver, "cuDeviceGetName"));
  if (init == nullptr || device_of == nullptr || name_of == nullptr) return "";
  int device = 0;
  std::array<char, 256> name{};
  if (init(0) != 0 || device_of(&device, index) != 0) return "";
  return name_of(name.data(), static_cast<int>(name.size()) - 1, device) == 0 ? name.data() : "";
}

}  // namespace trireme
