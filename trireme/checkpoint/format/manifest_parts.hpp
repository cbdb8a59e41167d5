#pragma once
// The parts of a manifest: written by each rank, collected by rank 0. Note [Parts of a manifest]
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trireme/checkpoint/format/commit.hpp"
#include "trireme/checkpoint/format/manifest.hpp"
#include "trireme/files/fs.hpp"

namespace trireme::checkpoint {

/// "rank-00003.json"
std::string rank_part_name(int rank);

/// Adds the files and tensors of another file of the same rank.
void add_file(Manifest& part, const Manifest& file);

/// Writes the part of a rank when its files are on disk. CheckpointError.
void write_part(files::Fs& fs, const SaveTarget& target, int rank, Manifest part);

/// How many ranks have written theirs, by a listing of the folder; 0 if it cannot be listed. Not by asking for names
/// that may not exist yet: NFS would remember for a minute that they do not.
int count_parts(const SaveTarget& target);

/// Makes a manifest of its parts, of which it keeps no slices.
class PartCollector {
 public:
  /// The part of the next rank: the file that it is in, and what that says. InternalError for a tensor that two ranks
  /// have different ideas of.
  void add(const StoredFile& file, const Manifest& part);
  /// Adds all files and tensors. InternalError names a tensor that is not complete.
  void finish(Manifest& manifest) &&;

 private:
  struct Collected {
    StoredTensor tensor;
    std::uint64_t bytes = 0;  // of the slices so far
  };
  void add_tensor(const StoredTensor& of_part, std::int64_t part);

  std::vector<StoredFile> files_;
  std::vector<std::size_t> parts_;
  std::map<std::pair<std::string, std::string>, Collected> tensors_;
};

/// Reads the parts of all ranks; adds their files and tensors to the manifest, which then lists no slices.
/// CheckpointError if one cannot be read or is of another save; InternalError as above.
void collect_parts(Manifest& manifest, const SaveTarget& target, int world);

}  // namespace trireme::checkpoint
