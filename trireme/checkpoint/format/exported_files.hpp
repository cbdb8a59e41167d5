#pragma once
// Files that are added to a complete checkpoint: the weights for transformers, and a list with their hashes.
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/checkpoint/format/manifest.hpp"
#include "trireme/files/fs.hpp"

namespace trireme::checkpoint {

inline constexpr const char* kExportListName = "exported_files.json";

// Note [Export after commit]
//   begin_export   makes an empty folder next to the checkpoint, for the exported files; the next start removes it
//   the files are written there, and brought to the disk
//   add_exported   hashes the files and moves them into the checkpoint; the list of their hashes is moved last
// The checkpoint is complete before, during and after this: whatever happens costs only the export. A crash between two
// moves leaves files that are in no list, which the next export replaces.
/// Returns the folder. Both throw CheckpointError with the path and the system's reason.
std::filesystem::path begin_export(files::Fs& fs, const std::filesystem::path& checkpoint);
void add_exported(files::Fs& fs, const std::filesystem::path& exported, const std::filesystem::path& checkpoint,
                  const std::function<void()>& progress = {});

/// The list, in which each file has one hash (StoredFile::header_bytes is its size); nullopt if there is none.
/// CheckpointError if it is damaged, or is the list of another checkpoint than `id`.
std::optional<Manifest> exported_in(const std::filesystem::path& checkpoint, const std::string& id);

/// Reads every listed file. Each fault is a line that begins with the name of the file.
std::vector<std::string> faults_of_exported(const std::filesystem::path& checkpoint, const Manifest& list);

}  // namespace trireme::checkpoint
