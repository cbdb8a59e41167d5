#pragma once
// Writes a file of a checkpoint: slices of tensors, hashed and written by a thread while the next ones are copied.
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

#include "trireme/checkpoint/format/block_pool.hpp"
#include "trireme/checkpoint/format/commit.hpp"
#include "trireme/checkpoint/format/manifest.hpp"
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

/// The header of a safetensors file whose tensors are these slices: rank_file_name() in the layout of our own.
std::string rank_file_header(const std::vector<PlannedSlice>& slices, const std::string& id);

/// One thread appends the bytes of the file, in order; another hashes and writes them.
class ShardWriter {
 public:
  /// Writes to target.temporary() / name (StoredFile::name), and makes its folders first (begin_save).
  ShardWriter(files::Fs& fs, BlockPool& pool, SaveTarget target, std::string name);
  /// Without finish(): stops writing and closes the file, which is incomplete.
  ~ShardWriter();
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  /// Bytes that are in no slice: of the file's format. Waits while the pool has no block. After a failed write the
  /// bytes are dropped: finish() reports it.
  void append(std::span<const std::byte> bytes);
  /// All bytes of a slice.
  void append(const PlannedSlice& slice, std::span<const std::byte> bytes);
  /// No bytes follow: the last block is handed over. Afterwards the appended memory is no longer needed.
  void end();
  /// The file is not needed any more: what was appended is dropped, and append() returns at once.
  void cancel() { failed_ = true; }
  /// Whether it could not be written, or was cancelled: more bytes are of no use, finish() says why.
  bool has_failed() const { return failed_; }
  /// The same, for the appending thread: afterwards nothing is written any more. Without effect after finish().
  void give_up();
  /// Bytes written so far, for a caller that watches the progress.
  std::uint64_t written() const { return written_; }

  /// After end(): waits until the file is on disk. Its StoredFile and its slices, as the only file of a manifest.
  /// CheckpointError with the file and the reason if it could not be written, std::bad_alloc for want of memory.
  Manifest finish();

 private:
  struct Filled {
    BlockPool::Block block;
    std::size_t bytes = 0;
  };

  /// A slice, or what is between two of them.
  struct Section {
    std::uint64_t end;  // in the file
    bool is_slice;
  };

  void append(std::span<const std::byte> bytes, bool is_slice);
  void hand_over();
  void write_blocks();
  int write_block(Filled& filled);
  void hash_sections(std::span<const std::byte> bytes);
  void open();
  void fail(const std::string& why);
  void fail(const char* what, int error);

  files::Fs& fs_;
  BlockPool& pool_;
  const SaveTarget target_;
  const std::string name_;
  const std::filesystem::path path_;

  // The appending thread's.
  Filled current_;
  std::vector<std::pair<PlannedSlice, std::uint64_t>> slices_;  // and their places in the file
  std::uint64_t appended_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Filled> queue_;
  std::deque<Section> sections_;  // that are not hashed yet
  bool ended_ = false;
  std::string failure_;
  bool no_memory_ = false;  // that was the failure; finish() reads it when the thread is over
  std::atomic<bool> failed_ = false;
  std::atomic<std::uint64_t> written_ = 0;

  // The writing thread's.
  int fd_ = -1;
  std::vector<files::Xxh3> hashes_;
  files::Xxh3Stream hash_, header_hash_;
  std::uint64_t header_bytes_ = 0;
  std::thread thread_;
};

}  // namespace trireme::checkpoint
