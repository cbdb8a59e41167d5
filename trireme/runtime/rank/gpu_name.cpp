#include "trireme/runtime/rank/gpu_name.hpp"

#include <array>
#include <optional>

#include <dlfcn.h>

#include "trireme/base/sha256.hpp"

namespace trireme {

namespace {

/// A function of the driver; null if there is no driver, or it has none of this name.
template <class Function>
Function* of_driver(const char* name) {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);  // stays loaded: CUDA uses it too
  return driver == nullptr ? nullptr : reinterpret_cast<Function*>(::dlsym(driver, name));
}

/// The driver's number of the device, or nullopt.
std::optional<int> driver_device(int index) {
  auto* const init = of_driver<int(unsigned)>("cuInit");
  auto* const device_of = of_driver<int(int*, int)>("cuDeviceGet");
  int device = 0;
  if (init == nullptr || device_of == nullptr || init(0) != 0 || device_of(&device, index) != 0) return std::nullopt;
  return device;
}

}  // namespace

std::string gpu_name(int index) {
  const std::optional<int> device = driver_device(index);
  auto* const name_of = of_driver<int(char*, int, int)>("cuDeviceGetName");
  std::array<char, 256> name{};
  if (!device || name_of == nullptr || name_of(name.data(), static_cast<int>(name.size()) - 1, *device) != 0) return "";
  return name.data();
}

std::string gpu_uuid(int index) {
  using UuidOf = int(char*, int);
  const std::optional<int> device = driver_device(index);
  auto* uuid_of = of_driver<UuidOf>("cuDeviceGetUuid_v2");  // tells the instances of one GPU (MIG) apart
  if (uuid_of == nullptr) uuid_of = of_driver<UuidOf>("cuDeviceGetUuid");
  std::string bytes(16, '\0');
  return device && uuid_of != nullptr && uuid_of(bytes.data(), *device) == 0 ? hex_digits(bytes) : "";
}

}  // namespace trireme
