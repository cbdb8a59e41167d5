#include "trireme/runtime/memory/device_snapshot.hpp"

#include <fstream>

#include <torch/csrc/cuda/memory_snapshot.h>

namespace trireme {

void record_device_memory() {
  // Without stacks, which would cost time in every allocation.
  torch::cuda::_record_memory_history("all", std::nullopt, "all", /*max_entries=*/100'000);
}

bool write_device_snapshot(const std::filesystem::path& file) {
  try {
    std::filesystem::create_directories(file.parent_path());
    const std::string pickle = torch::cuda::_memory_snapshot_pickled();
    std::ofstream out(file, std::ios::binary);
    out.write(pickle.data(), static_cast<std::streamsize>(pickle.size()));
    out.close();
    return out.good();
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace trireme
