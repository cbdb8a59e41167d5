#include "trireme/checkpoint/shard_writer.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/base/process_limits.hpp"
#include "trireme/checkpoint/reader.hpp"
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

ShardWriter::ShardWriter(files::Fs& fs, BlockPool& pool, SaveTarget target, int rank, std::vector<PlannedSlice> slices)
    : fs_(fs),
      pool_(pool),
      target_(std::move(target)),
      path_(target_.temporary() / rank_file_name(rank)),
      slices_(std::move(slices)) {
  std::vector<files::SafetensorsTensor> tensors;
  for (const PlannedSlice& slice : slices_) tensors.push_back({key_of(slice), slice.dtype, sizes_of(slice.box)});
  const std::string header =
      files::safetensors_header(tensors, {{"format", "pt"}, {"checkpoint", target_.id}}, path_.filename().string());
  file_.name = path_.filename().string();
  file_.header_bytes = header.size();
  file_.header_hash = files::xxh3(std::as_bytes(std::span(header)));
  std::uint64_t end = header.size();
  for (const files::SafetensorsTensor& tensor : tensors) ends_.push_back(end += files::bytes_of(tensor));
  file_.bytes = end;
  thread_ = std::thread([this] { write_blocks(); });
  append(std::as_bytes(std::span(header)));
}

ShardWriter::~ShardWriter() {
  if (thread_.joinable()) {
    cancel();
    end();
    thread_.join();
  }
}

void ShardWriter::append(std::span<const std::byte> bytes) {
  appended_ += bytes.size();
  require(appended_ <= file_.bytes, path_.string(), ": more bytes than its slices have");
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
  require(failed_ || appended_ == file_.bytes, path_.string(), ": ", appended_, " of ", file_.bytes,
          " bytes were appended");
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
    begin_save(fs_, target_);
  } catch (const CheckpointError& e) {
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
    if (!failed_)
      if (const int error = write_block(filled)) fail("cannot be written", error);
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
  hash_slices(bytes);
  // Direct I/O writes whole units: the last one is filled up, and the file cut to its size.
  const std::size_t unit = files::Fs::kDirectAlign, padded = (filled.bytes + unit - 1) / unit * unit;
  std::memset(filled.block.get() + filled.bytes, 0, padded - filled.bytes);
  if (const int error = fs_.write(fd_, written_, {filled.block.get(), padded})) return error;
  written_ += filled.bytes;
  return padded == filled.bytes ? 0 : fs_.truncate(fd_, written_);
}

void ShardWriter::hash_slices(std::span<const std::byte> bytes) {
  const std::uint64_t begin = written_;
  for (std::uint64_t at = std::max(begin, file_.header_bytes); hashes_.size() < ends_.size();) {
    const std::uint64_t slice_end = ends_[hashes_.size()], end = std::min(slice_end, begin + bytes.size());
    if (at > end) break;  // the block has only a part of the header
    hash_.add(bytes.subspan(at - begin, end - at));
    at = end;
    if (end < slice_end) break;
    hashes_.push_back(hash_.result());
    hash_.reset();
  }
}

Manifest ShardWriter::finish() {
  thread_.join();
  require<CheckpointError>(failure_.empty(), failure_);
  require(written_ == file_.bytes && hashes_.size() == slices_.size(), path_.string(), ": finish() before end()");
  Manifest shard;
  shard.files.push_back(file_);
  std::map<std::pair<std::string, std::string>, std::size_t> places;
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    const PlannedSlice& slice = slices_[i];
    const auto [place, is_new] = places.try_emplace({slice.name, slice.kind}, shard.tensors.size());
    if (is_new)
      shard.tensors.push_back({.name = slice.name, .kind = slice.kind, .dtype = slice.dtype, .shape = slice.shape});
    shard.tensors[place->second].slices.push_back(
        {.box = slice.box, .file = 0, .offset = i == 0 ? file_.header_bytes : ends_[i - 1], .hash = hashes_[i]});
  }
  return shard;
}

void merge_shards(Manifest& manifest, const std::vector<Manifest>& shards) {
  std::map<std::pair<std::string, std::string>, StoredTensor> tensors;
  for (const Manifest& shard : shards) {
    const std::size_t first = manifest.files.size();
    manifest.files.insert(manifest.files.end(), shard.files.begin(), shard.files.end());
    for (const StoredTensor& part : shard.tensors) {
      StoredTensor& whole =
          tensors
              .try_emplace({part.name, part.kind},
                           StoredTensor{.name = part.name, .kind = part.kind, .dtype = part.dtype, .shape = part.shape})
              .first->second;
      require(whole.shape == part.shape && whole.dtype == part.dtype, part.name, " ", part.kind, ": ",
              tuple_text(part.shape), " ", files::name(part.dtype), " on one rank, ", tuple_text(whole.shape), " ",
              files::name(whole.dtype), " on another");
      for (StoredSlice slice : part.slices) {
        slice.file += first;
        whole.slices.push_back(std::move(slice));
      }
    }
  }
  for (auto& [key, tensor] : tensors) {
    std::uint64_t bytes = 0;
    for (const StoredSlice& slice : tensor.slices) bytes += bytes_of(tensor, slice.box);
    const std::uint64_t whole =
        static_cast<std::uint64_t>(numel(tensor.shape)) * static_cast<std::uint64_t>(files::bits(tensor.dtype)) / 8;
    require(bytes == whole, tensor.name, " ", tensor.kind, ": the ranks wrote ", bytes, " of ", whole, " bytes");
    manifest.tensors.push_back(std::move(tensor));
  }
}

}  // namespace trireme::checkpoint
