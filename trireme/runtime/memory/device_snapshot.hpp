#pragma once
// What the memory of a GPU is used for, as a file for pytorch.org/memory_viz.
#include <filesystem>

namespace trireme {

/// From now on allocations are recorded, at most the last 100,000. Does nothing in a build without CUDA.
void record_device_memory();

/// Writes a snapshot; false in a build without CUDA, and if it could not be written: a run that is out of memory says
/// so anyway.
bool write_device_snapshot(const std::filesystem::path& file);

}  // namespace trireme
