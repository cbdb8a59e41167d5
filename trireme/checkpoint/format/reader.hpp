#pragma once
// Reads a checkpoint: nothing is returned that does not have the hash in the manifest.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/owned_fd.hpp"
#include "trireme/checkpoint/format/manifest.hpp"
#include "trireme/files/random_reader.hpp"

namespace trireme::checkpoint {

/// "rank-00003.safetensors"
std::string rank_file_name(int rank);
/// Whether a name is of this form (with any number of digits), or is that of a part of the manifest, "rank-00003.json".
bool is_rank_file(std::string_view name);

/// The manifest alone, without its parts. Errors as those of Reader.
Manifest manifest_in(const std::filesystem::path& checkpoint);

/// Counts what has been read, for whoever watches a storage that may not answer; null: nobody does.
using ReadProgress = std::shared_ptr<std::atomic<std::uint64_t>>;

/// An open checkpoint. Everything that can be checked without reading tensors is checked by the constructor. All
/// functions are thread-safe. What the system fails to read is tried again, for some seconds: then, or without the
/// permission, it is a StorageError, and nothing is known to be damaged.
class Reader {
 public:
  /// CheckpointError with all faults: a file that is missing, has another size or another header, or is of another
  /// checkpoint; a rank's file that the manifest does not list; bytes or elements in no slice or in two; a folder
  /// step-N that holds another step. SecurityError for symlinks and for names that leave the folder; `checkpoint`
  /// itself may not be a symlink either.
  explicit Reader(const std::filesystem::path& checkpoint, ReadProgress progress = {});
  /// To find out all that is wrong: faults that leave the manifest and other files usable are added to `faults` instead
  /// of thrown, each a line that begins with the name of the file.
  Reader(const std::filesystem::path& checkpoint, std::vector<std::string>& faults);
  /// For one of many ranks, of which another has opened all of it and found no fault: `manifest` is what manifest_in()
  /// returns, and only the parts and files that hold tensors with wanted(name, kind) are opened and checked. Other
  /// tensors have no slices, or only some of them.
  using Wanted = std::function<bool(const std::string& name, const std::string& kind)>;
  Reader(const std::filesystem::path& checkpoint, Manifest manifest, const Wanted& wanted, ReadProgress progress = {});

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
  std::filesystem::path open_folder(const std::filesystem::path& checkpoint);
  void use(Manifest manifest);
  bool check_file(std::size_t index, Faults& faults);
  void check_all(const std::filesystem::path& checkpoint, Faults& faults);
  void throw_faults(const Faults& faults) const;
  bool read_part(std::size_t part, Faults& faults);
  void check_complete(const StoredTensor& tensor, Faults& faults) const;
  void check_extra_files(const std::filesystem::path& checkpoint, Faults& faults) const;
  void check_slices(Faults& faults);

  files::Xxh3 read_bytes(const StoredFile& file, std::uint64_t offset, std::span<std::byte> out) const;

  void add_progress() const {
    if (progress_) ++*progress_;
  }

  ReadProgress progress_;
  std::string shown_;
  bool direct_ = false;
  OwnedFd folder_;
  Manifest manifest_;
  std::vector<bool> has_slices_;  // of manifest_.files: whether those in it are known
  struct ByteRange {
    std::uint64_t begin, end;
  };
  std::vector<std::vector<ByteRange>> headers_;  // of manifest_.files: their bytes that are in no slice, in order
  std::vector<files::FileStamp>
      stamps_;  // of manifest_.files; empty for those that are not there, or have another size
};

}  // namespace trireme::checkpoint
