#pragma once
// Reads slices of full tensors from a checkpoint of any layout: each rank only the files and bytes that it needs.
#include <vector>

#include "trireme/checkpoint/format/reader.hpp"
#include "trireme/parallel/state/state_slice.hpp"

namespace trireme {

/// Sets the values of all slices, converted to their dtypes. Every slice of the checkpoint that is read is verified.
/// CheckpointError names what is damaged; then some values are set.
void read_slices(const checkpoint::Reader& reader, const std::vector<StateSlice>& slices);

}  // namespace trireme
