#pragma once
// Writer for a model folder in Hugging Face layout: one safetensors file, or shards and their index, plus small files.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/files/safetensors_write.hpp"
#include "trireme/files/staged_files.hpp"

namespace trireme::files {

/// The default of transformers before 5.0 (since then 50 GB): smaller files can be downloaded and retried separately.
inline constexpr std::uint64_t kMaxShardBytes = 5'000'000'000;

/// The file that holds the tensors [begin, end) of a list.
struct SafetensorsShard {
  std::string file;  // model.safetensors, or model-00001-of-00003.safetensors
  std::size_t begin = 0, end = 0;
  std::uint64_t bytes = 0;  // of the tensors
  bool operator==(const SafetensorsShard&) const = default;
};

/// Fills files in order with tensors of at most `max_shard_bytes` in total; a larger tensor gets its own file. At least
/// one file, even without tensors.
std::vector<SafetensorsShard> safetensors_shards(std::span<const SafetensorsTensor> tensors,
                                                 std::uint64_t max_shard_bytes = kMaxShardBytes);

// Note [A folder appears at once]: if `folder` does not exist, its files are written to FOLDER.tmp-HOST-PID-N
// beside it, which is renamed when all of them are on disk; so the folder appears atomically, even after a crash. An
// existing empty folder is kept (it may be a mount point, or have its own permissions): then the files in it are
// renamed one after the other at the end, shards before the index, and the index before the files of add_file().
//
// Throws CheckpointError for all errors of the disk or the folder, with the total size in bytes and the system's
// reason. An error removes everything written so far; nothing can be written afterwards.
class SafetensorsFolderWriter {
 public:
  /// CheckpointError if `folder` exists and is not empty: a checkpoint is never overwritten. InternalError for invalid
  /// tensors, as in SafetensorsWriter. Creates missing parent folders.
  SafetensorsFolderWriter(const std::filesystem::path& folder, std::vector<SafetensorsTensor> tensors,
                          std::uint64_t max_shard_bytes = kMaxShardBytes);
  /// Removes everything written, unless it was published.
  ~SafetensorsFolderWriter();
  SafetensorsFolderWriter(const SafetensorsFolderWriter&) = delete;
  SafetensorsFolderWriter& operator=(const SafetensorsFolderWriter&) = delete;

  /// Appends bytes to this tensor; tensors are written in the order of the list. InternalError as in
  /// SafetensorsWriter::append.
  void append(std::string_view tensor, std::span<const std::byte> bytes);

  /// A small file next to the weights (config.json, tokenizer.json), kept in memory until publish(). InternalError for
  /// a name that is not a base name or is already used.
  void add_file(const std::string& name, std::string contents);

  /// InternalError if a tensor is incomplete. `before_step`: see StagedFiles::publish; also called before the folder is
  /// renamed.
  void publish(const std::function<void()>& before_step = {});

  const std::vector<SafetensorsShard>& shards() const { return shards_; }

 private:
  template <class Body>
  void guarded(const Body& body);
  void check_tensors() const;
  void make_workplace();
  void check_empty() const;
  StagedFile& stage(const std::string& name);
  void begin_shard();
  void end_shard();
  std::string index_json() const;
  void move_into_place();
  void discard() noexcept;

  std::filesystem::path folder_;  // absolute, the last component is not a symlink
  std::string shown_;             // the path as given by the caller
  std::vector<SafetensorsTensor> tensors_;
  std::vector<SafetensorsShard> shards_;
  std::uint64_t total_bytes_ = 0;
  std::vector<std::pair<std::string, std::string>> small_files_;

  std::vector<std::filesystem::path> made_;  // created parent folders, innermost first
  std::filesystem::path workplace_;          // where files are written: folder_, or the temporary folder
  std::unique_ptr<StagedFiles> staged_;      // null after publishing or an error
  std::unique_ptr<SafetensorsWriter> writer_;
  std::size_t shard_ = 0, tensor_ = 0;
  bool is_renaming_ = false;
};

}  // namespace trireme::files
