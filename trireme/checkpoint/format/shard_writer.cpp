#include "trireme/checkpoint/format/shard_writer.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <new>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/base/process_limits.hpp"
#include "trireme/checkpoint/format/reader.hpp"
#include "trireme/files/safetensors_write.hpp"

namespace trireme::checkpoint {
namespace {

std::vector<std::int64_t> sizes_of(const Box& box) {
  std::vector<std::int64_t> sizes;
  for (const Range& side : box) sizes.push_back(side.size());
  return sizes;
}

/// Unique in the file, and readable: "layers.0.attention.qkv.weight/exp_avg/0:96,0:64".
std::string key_of(const PlannedSlice& slice) {
  std::string key = text(slice.name, "/", slice.kind, "/");
  for (std::size_t d = 0; d < slice.box.size(); ++d)
    key += text(d > 0 ? "," : "", slice.box[d].begin, ":", slice.box[d].end);
  return key;
}

}  // namespace

std::vector<Box> split_box(const Box& box, std::int64_t max_elements) {
  require(max_elements > 0, "split_box: at most ", max_elements, " elements");
  // The outermost dim with more than one index is cut; its rows first, if even one of them is too large.
  std::int64_t row = 1;
  for (const Range& side : box) row *= side.size();
  if (row <= max_elements) return {box};
  std::size_t dim = 0;
  while (box[dim].size() == 1) ++dim;
  row /= box[dim].size();
  const std::int64_t rows = std::max<std::int64_t>(1, max_elements / row);
  std::vector<Box> out;
  for (std::int64_t begin = box[dim].begin; begin < box[dim].end; begin += rows) {
    Box part = box;
    part[dim] = {begin, std::min(begin + rows, box[dim].end)};
    for (Box& smaller : split_box(part, max_elements)) out.push_back(std::move(smaller));
  }
  return out;
}

std::string rank_file_header(const std::vector<PlannedSlice>& slices, const std::string& id) {
  std::vector<files::SafetensorsTensor> tensors;
  for (const PlannedSlice& slice : slices) tensors.push_back({key_of(slice), slice.dtype, sizes_of(slice.box)});
  return files::safetensors_header(tensors, {{"format", "pt"}, {"checkpoint", id}}, "the file of a rank");
}

ShardWriter::ShardWriter(files::Fs& fs, BlockPool& pool, SaveTarget target, std::string name)
    : fs_(fs),
      pool_(pool),
      target_(std::move(target)),
      name_(std::move(name)),
      path_(target_.temporary() / name_),
      thread_([this] { write_blocks(); }) {}

ShardWriter::~ShardWriter() { give_up(); }

void ShardWriter::give_up() {
  if (!thread_.joinable()) return;
  cancel();
  end();
  thread_.join();
}

void ShardWriter::append(std::span<const std::byte> bytes) { append(bytes, /*is_slice=*/false); }

void ShardWriter::append(const PlannedSlice& slice, std::span<const std::byte> bytes) {
  const std::uint64_t wanted = files::bytes_of({slice.name, slice.dtype, sizes_of(slice.box)});
  require(bytes.size() == wanted, path_.string(), ": ", bytes.size(), " of the ", wanted, " bytes of ", slice.name);
  if (bytes.empty()) return;
  slices_.emplace_back(slice, appended_);
  append(bytes, /*is_slice=*/true);
}

void ShardWriter::append(std::span<const std::byte> bytes, bool is_slice) {
  appended_ += bytes.size();
  {
    const std::lock_guard lock(mutex_);
    sections_.push_back({appended_, is_slice});
  }
  while (!bytes.empty() && !failed_) {
    if (!current_.block) current_ = {pool_.take(), 0};
    const std::size_t part = std::min(bytes.size(), BlockPool::kBlockBytes - current_.bytes);
    std::memcpy(current_.block.get() + current_.bytes, bytes.data(), part);
    current_.bytes += part;
    bytes = bytes.subspan(part);
    if (current_.bytes == BlockPool::kBlockBytes) hand_over();
  }
}

void ShardWriter::hand_over() {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::exchange(current_, {}));
  changed_.notify_all();
}

void ShardWriter::end() {
  if (current_.block) hand_over();
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

void ShardWriter::fail(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = why;
  failed_ = true;
}

void ShardWriter::fail(const char* what, int error) {
  fail(text(path_.string(), ": ", what, ": ", write_error_text(error), "\n  fix: ", write_error_fix(error)));
}

void ShardWriter::open() {
  try {
    // Once is enough for all files of all ranks: it makes the folders above durable, one by one.
    if (!std::filesystem::exists(std::filesystem::symlink_status(target_.temporary()))) begin_save(fs_, target_);
    make_folders(fs_, target_.temporary(), name_);
  } catch (const std::bad_alloc&) {
    no_memory_ = true;
    return fail("no memory");
  } catch (const std::exception& e) {
    return fail(e.what());
  }
  if (const int error = fs_.create(path_, /*direct=*/true, fd_)) fail("cannot be created", error);
}

/// Until end(): also after a failure, so that the appending thread gets its blocks back.
void ShardWriter::write_blocks() {
  open();
  for (;;) {
    Filled filled;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !queue_.empty() || ended_; });
      if (queue_.empty()) break;
      filled = std::move(queue_.front());
      queue_.pop_front();
    }
    try {
      if (!failed_)
        if (const int error = write_block(filled)) fail("cannot be written", error);
    } catch (const std::bad_alloc&) {
      no_memory_ = true;
      fail("no memory");
    }
    pool_.give_back(std::move(filled.block));
  }
  if (fd_ < 0) return;
  // After a failed fsync the kernel may have dropped the data: nothing of this file is used then.
  if (!failed_)
    if (const int error = fs_.sync(fd_)) fail("fsync failed", error);
  if (const int error = fs_.close(fd_); error != 0 && !failed_) fail("cannot be closed", error);
}

int ShardWriter::write_block(Filled& filled) {
  const std::span<std::byte> bytes(filled.block.get(), filled.bytes);
  hash_sections(bytes);
  // Direct I/O writes whole units: the last one is filled up, and the file cut to its size.
  const std::size_t unit = files::Fs::kDirectAlign, padded = (filled.bytes + unit - 1) / unit * unit;
  std::memset(filled.block.get() + filled.bytes, 0, padded - filled.bytes);
  if (const int error = fs_.write(fd_, written_, {filled.block.get(), padded})) return error;
  written_ += filled.bytes;
  return padded == filled.bytes ? 0 : fs_.truncate(fd_, written_);
}

void ShardWriter::hash_sections(std::span<const std::byte> bytes) {
  const std::uint64_t begin = written_, block_end = begin + bytes.size();
  for (std::uint64_t at = begin; at < block_end;) {
    Section section;
    {
      const std::lock_guard lock(mutex_);
      section = sections_.front();
      if (section.end <= block_end) sections_.pop_front();
    }
    const std::uint64_t end = std::min(section.end, block_end);
    const std::span<const std::byte> part = bytes.subspan(at - begin, end - at);
    at = end;
    if (!section.is_slice) {
      header_hash_.add(part);
      header_bytes_ += part.size();
      continue;
    }
    hash_.add(part);
    if (end < section.end) break;
    hashes_.push_back(hash_.result());
    hash_.reset();
  }
}

Manifest ShardWriter::finish() {
  thread_.join();
  if (no_memory_) throw std::bad_alloc();
  require<CheckpointError>(failure_.empty(), failure_);
  require(written_ == appended_ && hashes_.size() == slices_.size(), path_.string(), ": finish() before end()");
  Manifest shard;
  shard.files.push_back(
      {.name = name_, .bytes = written_, .header_bytes = header_bytes_, .header_hash = header_hash_.result()});
  std::map<std::pair<std::string, std::string>, std::size_t> places;
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    const auto& [slice, offset] = slices_[i];
    const auto [place, is_new] = places.try_emplace({slice.name, slice.kind}, shard.tensors.size());
    if (is_new)
      shard.tensors.push_back({.name = slice.name, .kind = slice.kind, .dtype = slice.dtype, .shape = slice.shape});
    shard.tensors[place->second].slices.push_back({.box = slice.box, .file = 0, .offset = offset, .hash = hashes_[i]});
  }
  return shard;
}

}  // namespace trireme::checkpoint
