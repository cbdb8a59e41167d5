#pragma once
// Writing a model folder in Hugging Face's layout: one safetensors file, or shards and their index, and small files beside.
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

/// What transformers took until 5.0, which has 50 GB: smaller files fetch and fail in smaller pieces.
inline constexpr std::uint64_t kMaxShardBytes = 5'000'000'000;

/// The tensors [begin, end) of a list are in that file.
struct SafetensorsShard {
  std::string file;  // model.safetensors, or model-00001-of-00003.safetensors
  std::size_t begin = 0, end = 0;
  std::uint64_t bytes = 0;  // of the tensors
  bool operator==(const SafetensorsShard&) const = default;
};

/// A file takes tensors, in their order, as long as they have at most `max_shard_bytes` together; a larger tensor has a
/// file of its own. At least one file, also without tensors.
std::vector<SafetensorsShard> safetensors_shards(std::span<const SafetensorsTensor> tensors,
                                                 std::uint64_t max_shard_bytes = kMaxShardBytes);

// Note [A folder appears at once]: where `folder` is not there, its files are written to FOLDER.tmpPID-N beside it, which is
// renamed when all of them are on the disk; so it is there with everything or not at all, whatever happens. An empty folder
// that is there already stays the one it is (it may be a mount point, or have rights of its own): then the files in it take
// their names one after the other at the end, shards before the index and that before the files of add_file().
//
// CheckpointError for everything that the disk or the folder refuses, with the bytes of the whole and the system's reason. It
// removes what was written; nothing can be written after it.
class SafetensorsFolderWriter {
 public:
  /// CheckpointError when `folder` is there and not empty: a checkpoint is never overwritten. InternalError for bad tensors,
  /// as SafetensorsWriter's. Folders above it are made when they are not there.
  SafetensorsFolderWriter(const std::filesystem::path& folder, std::vector<SafetensorsTensor> tensors,
                          std::uint64_t max_shard_bytes = kMaxShardBytes);
  /// Removes what was written, unless it was published.
  ~SafetensorsFolderWriter();
  SafetensorsFolderWriter(const SafetensorsFolderWriter&) = delete;
  SafetensorsFolderWriter& operator=(const SafetensorsFolderWriter&) = delete;

  /// The next bytes of that tensor; tensors come in the order of the list. InternalError as SafetensorsWriter::append.
  void append(std::string_view tensor, std::span<const std::byte> bytes);

  /// A small file beside the weights (config.json, tokenizer.json), kept in memory until publish(). InternalError for a name
  /// that is not a base name or is taken.
  void add_file(const std::string& name, std::string contents);

  /// InternalError when a tensor lacks bytes. `before_step`: as StagedFiles::publish, and before the rename of the folder.
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

  std::filesystem::path folder_;  // absolute, without links in its last part
  std::string shown_;             // as the caller named it
  std::vector<SafetensorsTensor> tensors_;
  std::vector<SafetensorsShard> shards_;
  std::uint64_t total_bytes_ = 0;
  std::vector<std::pair<std::string, std::string>> small_files_;

  std::vector<std::filesystem::path> made_;  // folders above, innermost first
  std::filesystem::path workplace_;          // where files are written: folder_, or the temporary one
  std::unique_ptr<StagedFiles> staged_;      // nothing: it is over
  std::unique_ptr<SafetensorsWriter> writer_;
  std::size_t shard_ = 0, tensor_ = 0;
  bool is_renaming_ = false;
};

}  // namespace trireme::files
