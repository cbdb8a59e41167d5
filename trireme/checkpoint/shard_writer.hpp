#pragma once
// Writes the file of one rank: slices of tensors, hashed and written by a thread while the next ones are copied.
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "trireme/checkpoint/block_pool.hpp"
#include "trireme/checkpoint/commit.hpp"
#include "trireme/checkpoint/manifest.hpp"
#include "trireme/files/fs.hpp"

namespace trireme::checkpoint {

/// A box of a tensor that is to be written.
struct PlannedSlice {
  std::string name, kind;
  files::SafetensorsDtype dtype = files::SafetensorsDtype::F32;
  Shape shape;  // of the full tensor
  Box box;
};

/// The most bytes of a slice. A reader that needs any of it reads and verifies all of it, so this bounds its memory.
inline constexpr std::uint64_t kMaxSliceBytes = std::uint64_t{16} << 20;

/// The box as boxes of at most `max_elements` elements, consecutive in row-major order.
std::vector<Box> split_box(const Box& box, std::int64_t max_elements);

/// One thread appends the bytes of all slices, in order; another hashes and writes them.
class ShardWriter {
 public:
  /// Writes to target.temporary(), and makes it first (begin_save).
  ShardWriter(files::Fs& fs, BlockPool& pool, SaveTarget target, int rank, std::vector<PlannedSlice> slices);
  /// Without finish(): stops writing and closes the file, which is incomplete.
  ~ShardWriter();
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  /// Waits while the pool has no block. After a failed write the bytes are dropped: finish() reports it.
  void append(std::span<const std::byte> bytes);
  /// No bytes follow: the last block is handed over. Afterwards the appended memory is no longer needed.
  void end();
  /// The file is not needed any more: what was appended is dropped, and append() returns at once.
  void cancel() { failed_ = true; }
  /// Whether it could not be written, or was cancelled: more bytes are of no use, finish() says why.
  bool has_failed() const { return failed_; }
  /// Bytes written so far, for a caller that watches the progress.
  std::uint64_t written() const { return written_; }

  /// After end(): waits until the file is on disk. Its StoredFile and its slices, as the only file of a manifest.
  /// CheckpointError with the file and the reason if it could not be written.
  Manifest finish();

 private:
  struct Filled {
    BlockPool::Block block;
    std::size_t bytes = 0;
  };

  void hand_over();
  void write_blocks();
  int write_block(Filled& filled);
  void hash_slices(std::span<const std::byte> bytes);
  void open();
  void fail(const std::string& why);
  void fail(const char* what, int error);

  files::Fs& fs_;
  BlockPool& pool_;
  const SaveTarget target_;
  const std::filesystem::path path_;
  std::vector<PlannedSlice> slices_;
  StoredFile file_;
  std::vector<std::uint64_t> ends_;  // of each slice in the file

  // The appending thread's.
  Filled current_;
  std::uint64_t appended_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Filled> queue_;
  bool ended_ = false;
  std::string failure_;
  std::atomic<bool> failed_ = false;
  std::atomic<std::uint64_t> written_ = 0;

  // The writing thread's.
  int fd_ = -1;
  std::vector<files::Xxh3> hashes_;
  files::Xxh3Stream hash_;
  std::thread thread_;
};

/// The files and tensors of all shards, sorted. InternalError names a tensor that is not complete, or that two ranks
/// have different ideas of.
void merge_shards(Manifest& manifest, const std::vector<Manifest>& shards);

}  // namespace trireme::checkpoint
