#include "trireme/files/safetensors.hpp"

#include <cstring>
#include <utility>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/files/shown_name.hpp"

namespace trireme::files {
namespace {

constexpr std::size_t kLengthBytes = 8;

std::string_view as_chars(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The header's bytes. The length is checked by subtraction, which cannot overflow.
std::span<const std::byte> header_of(const MappedFile& file) {
  const std::span<const std::byte> bytes = file.bytes();
  require<CheckpointError>(!as_chars(bytes).starts_with("version https://git-lfs"), file.shown(),
                           ": this is a pointer of Git LFS, not the tensors\n  fix: git lfs pull");
  require<CheckpointError>(bytes.size() >= kLengthBytes, file.shown(), ": ", bytes.size(),
                           " bytes; a safetensors file starts with the 8 bytes of its header's length",
                           "\n  fix: fetch the file again; this one is cut short or not a safetensors file");
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) length = length << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  require<CheckpointError>(length <= kMaxHeaderBytes, file.shown(), ": its header has ", length,
                           " bytes by the length at its start; at most ", kMaxHeaderBytes, " are allowed",
                           "\n  fix: fetch the file again; this one is damaged or not a safetensors file");
  require<CheckpointError>(length <= bytes.size() - kLengthBytes, file.shown(), ": its header has ", length,
                           " bytes by the length at its start, but only ", bytes.size() - kLengthBytes, " follow",
                           "\n  fix: fetch the file again; this one is cut short");
  return bytes.subspan(kLengthBytes, static_cast<std::size_t>(length));
}

SafetensorsHeader parsed(const MappedFile& file) {
  const std::string_view header = as_chars(header_of(file));
  return {header, file.bytes().size() - kLengthBytes - header.size(), file.shown()};
}

}  // namespace

Safetensors::Safetensors(MappedFile file)
    : file_(std::move(file)),
      header_(parsed(file_)),
      data_(file_.bytes().subspan(kLengthBytes + header_of(file_).size())) {}

std::optional<SafetensorsEntry> Safetensors::find(std::string_view tensor) const {
  const auto index = header_.find(tensor);
  if (!index) return std::nullopt;
  return entry(*index);
}

SafetensorsEntry Safetensors::at(std::string_view tensor) const {
  auto found = find(tensor);
  if (!found) throw CheckpointError(text(shown(), ": there is no tensor ", shown_name(tensor), " among its ", size()));
  return *std::move(found);
}

// Here and below `throw`, not `require`: it would escape the name for every tensor, even on success.
std::span<const std::byte> Safetensors::bytes(const SafetensorsEntry& entry) const {
  if (entry.begin > entry.end || entry.end > data_.size()) throw not_of_this_file(entry);
  return data_.subspan(entry.begin, entry.end - entry.begin);
}

InternalError Safetensors::not_of_this_file(const SafetensorsEntry& entry) const {
  return InternalError(text(shown(), ": tensor ", shown_name(entry.name), ": the entry is not of this file"));
}

void Safetensors::read(const SafetensorsEntry& entry, std::span<const std::int64_t> starts,
                       std::span<const std::int64_t> sizes, std::span<std::byte> out) const {
  const auto fail = [&](const auto&... rule) {
    throw CheckpointError(text(shown(), ": tensor ", shown_name(entry.name), ": ", rule...));
  };
  const std::size_t num_dims = entry.shape.size();
  if (bits(entry.dtype) % 8 != 0)
    fail("an element of ", name(entry.dtype), " has ", bits(entry.dtype), " bits: only the whole tensor can be read");
  if (starts.size() != num_dims || sizes.size() != num_dims)
    fail("a box of ", starts.size(), " starts and ", sizes.size(), " sizes for a tensor of ", num_dims, " dims");
  const std::size_t element_bytes = static_cast<std::size_t>(bits(entry.dtype)) / 8;
  std::size_t box_bytes = element_bytes, tensor_bytes = element_bytes;
  for (std::size_t dim = 0; dim < num_dims; ++dim) {
    const std::int64_t size = entry.shape[dim];
    if (starts[dim] < 0 || sizes[dim] < 0 || starts[dim] > size || sizes[dim] > size - starts[dim])
      fail("dim ", dim, ": ", sizes[dim], " elements from ", starts[dim], " on leave a dim of size ", size);
    box_bytes *= static_cast<std::size_t>(sizes[dim]);
    tensor_bytes *= static_cast<std::size_t>(size);
  }
  const std::span<const std::byte> from = bytes(entry);
  if (from.size() != tensor_bytes) throw not_of_this_file(entry);
  if (out.size() != box_bytes)
    throw InternalError(text(shown(), ": tensor ", shown_name(entry.name), ": a box of ", box_bytes,
                             " bytes is read into ", out.size()));
  if (box_bytes == 0) return;

  // From the last dim on, fully selected dims and the first partially selected one form one contiguous run of bytes.
  std::size_t outer = num_dims, stride = element_bytes, run_bytes = element_bytes, first = 0;
  std::vector<std::size_t> strides(num_dims);
  for (std::size_t dim = num_dims; dim-- > 0;) {
    if (run_bytes == stride) {  // all inner dims are fully selected
      run_bytes *= static_cast<std::size_t>(sizes[dim]);
      outer = dim;
    }
    strides[dim] = stride;
    first += static_cast<std::size_t>(starts[dim]) * stride;
    stride *= static_cast<std::size_t>(entry.shape[dim]);
  }
  std::vector<std::int64_t> index(outer, 0);  // within the box
  std::size_t source = first;
  for (std::size_t written = 0; written < box_bytes; written += run_bytes) {
    std::memcpy(out.data() + written, from.data() + source, run_bytes);
    for (std::size_t dim = outer; dim-- > 0;) {
      source += strides[dim];
      if (++index[dim] < sizes[dim]) break;
      source -= strides[dim] * static_cast<std::size_t>(sizes[dim]);
      index[dim] = 0;
    }
  }
}

}  // namespace trireme::files
