#include "trireme/files/safetensors_write.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/base/json_text.hpp"
#include "trireme/base/utf8.hpp"
#include "trireme/files/little_endian.hpp"
#include "trireme/files/shown_name.hpp"

namespace trireme::files {
namespace {

constexpr std::size_t kAlignment = 8;
constexpr std::uint64_t kMaxFileBytes = std::numeric_limits<std::int64_t>::max();
constexpr const char* kMetadata = "__metadata__";

std::string list_of(const std::vector<std::int64_t>& numbers) {
  std::string out;
  for (const std::int64_t number : numbers) out += text(out.empty() ? "" : ",", number);
  return "[" + out + "]";
}

void check_name(const std::string& file, const std::string& name) {
  const char* fault = fault_of_tensor_name(name);
  if (fault == nullptr && name == kMetadata) fault = "this name is not a tensor's";
  // JSON cannot represent it, and a replacement name would not be found by readers.
  if (fault == nullptr && valid_utf8(name) != name) fault = "a tensor's name must be UTF-8";
  require(fault == nullptr, file, ": tensor ", shown_name(name), ": ", fault);
}

std::string metadata_json(const SafetensorsHeader::Metadata& metadata) {
  std::string out;
  for (const auto& [key, value] : metadata)
    out += text(out.empty() ? "" : ",", json_string(key), ":", json_string(value));
  return "{" + out + "}";
}

}  // namespace

std::uint64_t bytes_of(const SafetensorsTensor& tensor) {
  const auto refuse = [&](const std::string& rule) {
    throw InternalError(text("tensor ", shown_name(tensor.name), ": shape ", list_of(tensor.shape), " of ",
                             name(tensor.dtype), " ", rule));
  };
  std::int64_t product = bits(tensor.dtype);
  bool empty = false;
  for (const std::int64_t size : tensor.shape) {
    if (size < 0) refuse("has a negative size");
    empty |= size == 0;
    if (__builtin_mul_overflow(product, std::max<std::int64_t>(size, 1), &product)) refuse("overflows 64 bits");
  }
  if (empty) return 0;
  if (product % 8 != 0) refuse(text("has ", product, " bits, which do not fill whole bytes"));
  return static_cast<std::uint64_t>(product / 8);
}

SafetensorsHeader::Metadata pytorch_metadata() { return {{"format", "pt"}}; }

std::string safetensors_header(std::span<const SafetensorsTensor> tensors, const SafetensorsHeader::Metadata& metadata,
                               const std::string& shown) {
  std::string json = "{";
  if (!metadata.empty()) json += text("\"", kMetadata, "\":", metadata_json(metadata));
  std::uint64_t begin = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    check_name(shown, tensor.name);
    const std::uint64_t end = begin + bytes_of(tensor);
    require(end <= kMaxFileBytes, shown, ": tensor ", shown_name(tensor.name), " would end at byte ", end,
            "; a file has at most 2^63 - 1");
    json += text(json.size() == 1 ? "" : ",", json_string(tensor.name), ":{\"dtype\":\"", name(tensor.dtype),
                 "\",\"shape\":", list_of(tensor.shape), ",\"data_offsets\":[", begin, ",", end, "]}");
    begin = end;
  }
  json += "}";
  json.resize((json.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  try {  // checked by the reader itself, so that the two always agree
    const SafetensorsHeader read(json, begin, shown);
  } catch (const CheckpointError& error) {
    throw InternalError(text("a header that could not be read again: ", error.what()));
  }
  std::string out;
  append_little_endian(out, std::uint64_t{json.size()});
  return out + json;
}

SafetensorsWriter::SafetensorsWriter(StagedFile& file, std::vector<SafetensorsTensor> tensors,
                                     const SafetensorsHeader::Metadata& metadata)
    : file_(file), tensors_(std::move(tensors)) {
  file_.append(safetensors_header(tensors_, metadata, file_.shown()));
  if (!tensors_.empty()) wanted_ = bytes_of(tensors_[0]);
}

InternalError SafetensorsWriter::lacks_bytes(const std::string& what) const {
  return InternalError(text(file_.shown(), ": tensor ", shown_name(tensors_[current_].name), " has ", written_,
                            " of its ", wanted_, " bytes when ", what));
}

void SafetensorsWriter::append(std::string_view tensor, std::span<const std::byte> bytes) {
  while (current_ < tensors_.size() && tensors_[current_].name != tensor) {
    if (written_ < wanted_) throw lacks_bytes(text("bytes of ", shown_name(tensor), " come"));
    if (++current_ == tensors_.size()) break;
    wanted_ = bytes_of(tensors_[current_]);
    written_ = 0;
  }
  require(current_ < tensors_.size(), file_.shown(), ": bytes of tensor ", shown_name(tensor),
          " come after the last tensor; it is not in this file, or its turn is over");
  require(bytes.size() <= wanted_ - written_, file_.shown(), ": tensor ", shown_name(tensor), " has ", wanted_,
          " bytes; ", bytes.size(), " more come after ", written_);
  file_.append({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  written_ += bytes.size();
}

void SafetensorsWriter::finish() {
  for (; current_ < tensors_.size(); ++current_, written_ = 0) {
    wanted_ = bytes_of(tensors_[current_]);
    if (written_ < wanted_) throw lacks_bytes("the file ends");
  }
  file_.settle();
}

}  // namespace trireme::files
