// What is read of an open checkpoint: slices, boxes and small files, each compared with its hash.
#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/format/read_errors.hpp"
#include "trireme/checkpoint/format/reader.hpp"
#include "trireme/files/open_beneath.hpp"
#include "trireme/files/shown_name.hpp"
#include "trireme/layout/box_copy.hpp"

namespace trireme::checkpoint {
namespace {

// Small enough to be hashed while it is in the cache of the core that read it.
constexpr std::size_t kHashedBytes = std::size_t{1} << 20;
// Without the page cache nobody reads ahead: large enough to keep a disk busy.
constexpr std::size_t kDirectBytes = std::size_t{4} << 20;

/// Reads [offset, offset + size) in parts, each into the memory of buffer_for(done, size), and returns the hash.
template <class F>
files::Xxh3 read_hashed(const files::RandomReader& file, std::uint64_t offset, std::uint64_t size,
                        const F& buffer_for) {
  files::Xxh3Stream stream;
  for (std::uint64_t done = 0; done < size;) {
    const auto part = static_cast<std::size_t>(std::min<std::uint64_t>(kHashedBytes, size - done));
    const std::span<std::byte> buffer = buffer_for(done, part);
    file.read(offset + done, buffer);
    stream.add(buffer);
    done += part;
  }
  return stream.result();
}

}  // namespace

files::RandomReader Reader::opened(const StoredFile& file) const {
  const std::string shown = text(shown_, "/", file.name);
  const int fd = files::open_path_beneath(folder_.get(), file.name);
  if (fd < 0) throw_not_opened(shown, errno);
  files::RandomReader reader(fd, shown);
  const auto index = static_cast<std::size_t>(&file - manifest_.files.data());
  require<CheckpointError>(reader.stamp() == stamps_.at(index), shown,
                           ": was changed since the checkpoint was opened: it had ", stamps_[index].size,
                           " bytes and has ", reader.size(), "\n  fix: start again when nothing writes to it");
  return reader;
}

/// The hash of what it has read.
files::Xxh3 Reader::read_bytes(const StoredFile& file, std::uint64_t offset, std::span<std::byte> out) const {
  const files::RandomReader reader = opened(file);
  if (direct_ && out.size() >= kHashedBytes) {
    files::Xxh3Stream stream;
    thread_local const files::DirectScratch scratch(
        kDirectBytes);  // new memory costs more time than the copy out of it
    std::size_t done = 0;
    while (done < out.size()) {
      const std::span<std::byte> part = out.subspan(done, std::min(kDirectBytes, out.size() - done));
      if (!reader.read_direct(offset + done, part, scratch)) break;
      stream.add(part);
      done += part.size();
      add_progress();
    }
    if (done == out.size()) return stream.result();
  }
  return read_hashed(reader, offset, out.size(), [&](std::uint64_t done, std::size_t part) {
    add_progress();
    return out.subspan(static_cast<std::size_t>(done), part);
  });
}

void Reader::read_slice(const StoredTensor& tensor, const StoredSlice& slice, std::span<std::byte> out) const {
  require(slice.file < manifest_.files.size() && out.size() == bytes_of(tensor, slice.box), shown_, ": ",
          slice_name(tensor, slice.box), " is read into ", out.size(), " bytes");
  const StoredFile& stored = manifest_.files[slice.file];
  const files::Xxh3 hash = as_checkpoint_error([&] { return read_bytes(stored, slice.offset, out); });
  require<CheckpointError>(hash == slice.hash, shown_, "/", stored.name, ": the bytes from ", slice.offset, " to ",
                           slice.offset + out.size(), ", ", slice_name(tensor, slice.box), ", have the hash ",
                           str(hash), ", not ", str(slice.hash), ": they are damaged", kDamagedFix);
}

void Reader::read(const StoredTensor& tensor, const Box& box, std::span<std::byte> out) const {
  bool inside = box.size() == tensor.shape.size() && out.size() == bytes_of(tensor, box);
  for (std::size_t d = 0; inside && d < box.size(); ++d)
    inside = box[d].begin >= 0 && box[d].begin <= box[d].end && box[d].end <= tensor.shape[d];
  require(inside, shown_, ": ", slice_name(tensor, box), " of ", tuple_text(tensor.shape), " is read into ", out.size(),
          " bytes");
  if (out.empty()) return;
  const auto element = static_cast<std::size_t>(files::bits(tensor.dtype)) / 8;
  std::vector<std::byte> buffer;
  for (const StoredSlice& slice : tensor.slices) {
    const std::optional<Box> common = intersection(slice.box, box);
    if (!common) continue;
    const auto bytes = static_cast<std::size_t>(bytes_of(tensor, slice.box));
    if (const auto offset = contiguous_offset(slice.box, box)) {
      read_slice(tensor, slice, out.subspan(static_cast<std::size_t>(*offset) * element, bytes));
      continue;
    }
    buffer.resize(bytes);
    read_slice(tensor, slice, buffer);
    copy_box(buffer, slice.box, out, box, *common, element);
  }
}

std::string Reader::small_file(std::string_view name) const {
  const auto file = std::ranges::find(manifest_.files, name, &StoredFile::name);
  require<CheckpointError>(file != manifest_.files.end() && file->header_bytes == file->bytes, shown_, ": has no file ",
                           files::shown_name(name));
  std::string out(static_cast<std::size_t>(file->bytes), '\0');
  as_checkpoint_error([&] { opened(*file).read(0, std::as_writable_bytes(std::span(out))); });
  require<CheckpointError>(files::xxh3(std::as_bytes(std::span(out))) == file->header_hash, shown_, "/", file->name,
                           ": was changed since the checkpoint was opened", kDamagedFix);
  return out;
}

}  // namespace trireme::checkpoint
