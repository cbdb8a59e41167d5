#pragma once
// Writes a checkpoint again, as the files of a run with another layout. Any layout loads any checkpoint: this is for
// tools that read the files of one rank, and to change the number of files.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "trireme/checkpoint/format/reader.hpp"
#include "trireme/checkpoint/reshape/layout_changes.hpp"
#include "trireme/files/fs.hpp"

namespace trireme::checkpoint {

struct ReshapeOptions {
  LayoutChanges to;
  std::string program, time;  // of the new manifest
  /// After each slice, with the bytes of tensors that were read, and of all. What it throws ends the work.
  std::function<void(std::uint64_t done, std::uint64_t of)> progress = [](std::uint64_t, std::uint64_t) {};
  files::Fs* fs = nullptr;  // nullptr: the real one
};

struct Reshaped {
  std::filesystem::path path;  // OUT/step-N
  Manifest manifest;
  bool dropped_random = false;  // the states of the generators, which belong to a number of ranks
};

/// A new checkpoint OUT/step-N, of which each rank's file has what that rank would save (Note [Which rank saves what]).
/// Training state, data and small files are the same; a new id, and the layout's keys in the config. Of a checkpoint in
/// nanotron's layout, what only that layout has is left out: model/ and the files that name ranks.
/// Every byte is verified. Needs the memory of two slices (16 MiB each) and as much for writing. `out`: not there, or
/// an empty folder, in a folder that is there. ConfigError for a layout that does not fit the model, and for a wrong
/// `out`; CheckpointError for a source that is damaged or not a model of this program, and for errors of the disk.
/// After an error nothing is left.
Reshaped reshape(const Reader& source, const std::filesystem::path& out, const ReshapeOptions& options);

}  // namespace trireme::checkpoint
