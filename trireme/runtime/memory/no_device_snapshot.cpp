// device_snapshot.hpp in a build without CUDA.
#include "trireme/runtime/memory/device_snapshot.hpp"

namespace trireme {

void record_device_memory() {}

bool write_device_snapshot(const std::filesystem::path& /*file*/) { return false; }

}  // namespace trireme
