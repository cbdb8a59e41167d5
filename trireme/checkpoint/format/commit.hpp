#pragma once
// Saves a checkpoint so that it appears at once and survives any crash, and finds, prunes and cleans up checkpoints.
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "trireme/checkpoint/format/manifest.hpp"
#include "trireme/files/fs.hpp"

namespace trireme::checkpoint {

// Note [Commit protocol]
//   each rank begin_save      FOLDER/step-N.tmp-ID is made by the first of them: none waits for another
//             writes its files there, and fsyncs them; then its part of the manifest (manifest_parts.hpp)
//   rank 0    commit          small files and the manifest are written and fsynced, then the folders are; all files
//                             are there and have the right size and header; the folder is renamed to step-N and
//                             FOLDER is fsynced; `latest` is replaced
// A folder step-N without a valid manifest is not a checkpoint; `latest` is only a hint for people.
// A prune renames step-N to .trash-step-N-ID and fsyncs FOLDER before it removes the first file: no crash leaves a
// step-N with a part of its files.
// crash_states_test.cpp replays what a power cut can leave of any of these operations.
struct SaveTarget {
  std::filesystem::path folder;  // "checkpoints" of the run
  std::int64_t step = 0;
  std::string id;  // Manifest::id

  std::filesystem::path temporary() const;  // FOLDER/step-N.tmp-ID
  std::filesystem::path final() const;      // FOLDER/step-N
};

using SmallFiles = std::vector<std::pair<std::string, std::string>>;  // names, as StoredFile::name, and contents

/// All throw CheckpointError with the path, the operation and the system's reason. After an error the save is to be
/// abandoned and made again with another id: a file whose fsync failed is never used.
/// Makes FOLDER too, if it is not there; the folder that it is in must be. May be called by every rank.
void begin_save(files::Fs& fs, const SaveTarget& target);
/// `manifest.files` lists the ranks' files (collect_parts()); the small files are added. A checkpoint of this step that
/// is already there is replaced if it is not valid, else an error. When this returns, no crash can undo it.
void commit(files::Fs& fs, const SaveTarget& target, Manifest manifest, const SmallFiles& small_files);
/// The folders on the way to FOLDER/NAME, a path of base names, as far as they are not there.
void make_folders(files::Fs& fs, const std::filesystem::path& folder, const std::string& name);
/// Removes what was written of a save that failed. Does not throw: what cannot be removed is left to the next start.
void abandon(files::Fs& fs, const SaveTarget& target) noexcept;

/// Removes a folder with what is in it, as far as that is possible. Does not throw.
void remove_folder(files::Fs& fs, const std::filesystem::path& folder) noexcept;

struct FoundCheckpoint {
  std::int64_t step = 0;
  std::filesystem::path path;
};
/// The folders step-N in `folder`, newest first, whatever they contain. A folder that is not there has none.
std::vector<FoundCheckpoint> checkpoints_in(const std::filesystem::path& folder);

/// Why the folder is not a complete checkpoint (manifest, names, sizes and headers of all files, no extra ones), or
/// "". Does not read the tensors.
std::string why_not_valid(const std::filesystem::path& checkpoint);

/// Keeps the `keep` newest valid checkpoints, at least two (0: all), and those of steps that `keep_every` divides (0:
/// none); removes other valid ones. Never follows a symlink.
/// Never removes a folder that is not a valid checkpoint, one that has a folder of somebody else in it, or one that
/// this user may not write to. Returns what it removed. Only for the holder of the folder's lock, as are all functions
/// with an Fs.
std::vector<std::filesystem::path> prune(files::Fs& fs, const std::filesystem::path& folder, std::int64_t keep,
                                         std::int64_t keep_every = 0);

/// Renames a checkpoint that cannot be used to step-N.damaged (or step-N.damaged-2, ...), so that its step can be saved
/// again. Returns the new name. CheckpointError if that is not possible.
std::filesystem::path set_aside(files::Fs& fs, const std::filesystem::path& checkpoint);

/// Whether there is something that remove_unfinished() would remove.
bool has_unfinished(const std::filesystem::path& folder);
/// Removes what saves and prunes that were interrupted have left. CheckpointError lists what cannot be removed; the
/// rest is.
void remove_unfinished(files::Fs& fs, const std::filesystem::path& folder);

}  // namespace trireme::checkpoint
