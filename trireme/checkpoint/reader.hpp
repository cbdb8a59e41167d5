#pragma once
// Reads a checkpoint: nothing is returned that does not have the hash in the manifest.
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/owned_fd.hpp"
#include "trireme/checkpoint/manifest.hpp"
#include "trireme/files/random_reader.hpp"

namespace trireme::checkpoint {

/// "rank-00003.safetensors", and whether a name is of this form (with any number of digits).
std::string rank_file_name(int rank);
bool is_rank_file(std::string_view name);

/// An open checkpoint. Everything that can be checked without reading tensors is checked by the constructor. All
/// functions are thread-safe.
class Reader {
 public:
  /// CheckpointError with all faults: a file that is missing, has another size or another header, or is of another
  /// checkpoint; a rank's file that the manifest does not list; bytes or elements in no slice or in two; a folder
  /// step-N that holds another step. SecurityError for symlinks and for names that leave the folder; `checkpoint`
  /// itself may not be a symlink either.
  explicit Reader(const std::filesystem::path& checkpoint);
  /// To find out all that is wrong: faults that leave the manifest and other files usable are added to `faults` instead
  /// of thrown, each a line that begins with the name of the file.
  Reader(const std::filesystem::path& checkpoint, std::vector<std::string>& faults);

  const std::string& shown() const { return shown_; }
  const Manifest& manifest() const { return manifest_; }

  /// From now on large slices are read without the page cache, if the file system can: faster, for one who reads each
  /// slice once, and alone.
  void read_each_once() { direct_ = true; }

  /// Whether the slices of manifest().files[file] can be read; always, unless there were faults.
  bool is_readable(std::size_t file) const { return stamps_.at(file) != files::FileStamp{}; }
  /// All bytes of a slice, verified. CheckpointError names the file, the tensor, its kind, the box and the bytes.
  void read_slice(const StoredTensor& tensor, const StoredSlice& slice, std::span<std::byte> out) const;
  /// Any box of a tensor, row-major. Slices that it touches are read whole and verified.
  void read(const StoredTensor& tensor, const Box& box, std::span<std::byte> out) const;
  /// The contents of a small file, such as config.json, verified. CheckpointError if there is none of this name.
  std::string small_file(std::string_view name) const;

 private:
  struct Faults;

  files::RandomReader opened(const StoredFile& file) const;
  void read_manifest();
  void check_file(const StoredFile& file, Faults& faults);
  void check_all(const std::filesystem::path& checkpoint, Faults& faults);
  void check_extra_files(const std::filesystem::path& checkpoint, Faults& faults) const;
  void check_slices(Faults& faults);

  files::Xxh3 read_bytes(const StoredFile& file, std::uint64_t offset, std::span<std::byte> out) const;

  std::string shown_;
  bool direct_ = false;
  OwnedFd folder_;
  Manifest manifest_;
  struct ByteRange {
    std::uint64_t begin, end;
  };
  std::vector<std::vector<ByteRange>> headers_;  // of manifest_.files: their bytes that are in no slice, in order
  std::vector<files::FileStamp>
      stamps_;  // of manifest_.files; empty for those that are not there, or have another size
};

}  // namespace trireme::checkpoint
