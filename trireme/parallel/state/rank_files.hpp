#pragma once
// What the files of one rank in a checkpoint contain, and how they are written: the layout of our own.
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "trireme/checkpoint/format/shard_writer.hpp"
#include "trireme/parallel/state/host_copies.hpp"
#include "trireme/parallel/state/state_slice.hpp"

namespace trireme {

/// A slice of at most checkpoint::kMaxSliceBytes, and the memory that holds it.
struct SavedPart {
  checkpoint::PlannedSlice plan;
  at::Tensor values;
};

std::vector<SavedPart> saved_parts(const std::vector<StateSlice>& slices);
/// What a rank has besides tensors of the model, by kind (checkpoint::is_of_rank).
using RankState = std::map<std::string, std::vector<std::uint8_t>>;
std::vector<SavedPart> rank_parts(int rank, const RankState& state);

/// A file of this rank. `write` appends all of it, in a thread, while no tensor changes.
struct RankFile {
  std::string name;  // StoredFile::name
  std::function<void(checkpoint::ShardWriter& writer, HostCopies& host)> write;
};

/// One file with everything: rank_file_name(). `id`: of the checkpoint.
std::vector<RankFile> own_rank_files(int rank, const std::string& id, std::vector<SavedPart> parts);

/// The bytes of a tensor in host memory.
std::span<const std::byte> bytes_of(const at::Tensor& host);

}  // namespace trireme
