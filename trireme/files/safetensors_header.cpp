#include "trireme/files/safetensors_header.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/base/error.hpp"
#include "trireme/files/json_bounds.hpp"
#include "trireme/files/shown_name.hpp"

namespace trireme::files {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxNumber = std::numeric_limits<std::int64_t>::max();
constexpr const char* kFetchAgain = "\n  fix: fetch the file again; this one is cut short or damaged";

std::string list_of(const std::vector<std::uint64_t>& numbers) {
  std::string out;
  for (std::uint64_t number : numbers) out += text(out.empty() ? "" : ", ", number);
  return "[" + out + "]";
}

}  // namespace

const char* fault_of_tensor_name(std::string_view name) {
  if (name.empty()) return "a tensor's name must not be empty";
  if (name.size() > kMaxNameBytes) return "a tensor's name has at most 4096 bytes";
  if (has_control_character(name)) return "a tensor's name must not hold control characters";
  if (name.front() == '/') return "a tensor's name must not start with /";
  for (std::size_t at = 0; at < name.size();) {
    const std::size_t slash = std::min(name.find('/', at), name.size());
    if (name.substr(at, slash - at) == "..") return "a tensor's name must not have a part \"..\"";
    at = slash + 1;
  }
  return nullptr;
}

/// A SAX handler, so that no JSON tree is ever in memory; every event that is out of place in the format is rejected,
/// which also bounds the depth.
class SafetensorsHeader::Reader {
 public:
  Reader(SafetensorsHeader& header, std::uint64_t data_bytes, const std::string& file)
      : header_(header), data_bytes_(data_bytes), file_(file) {}

  bool start_object(std::size_t) {
    if (at_ == At::before) {
      at_ = At::top;
    } else if (at_ == At::top && key_ == kMetadata) {
      at_ = At::metadata;
    } else if (at_ == At::top) {
      at_ = At::tensor;
      tensor_.shape.clear();
      tensor_.offsets.clear();
      tensor_.has_dtype = tensor_.has_shape = tensor_.has_offsets = false;
    } else {
      misplaced("an object");
    }
    return true;
  }
  bool end_object() {
    if (at_ == At::tensor) add_tensor();
    at_ = at_ == At::top ? At::after : At::top;
    return true;
  }
  bool start_array(std::size_t) {
    if (at_ == At::tensor && key_ == "shape")
      at_ = At::shape;
    else if (at_ == At::tensor && key_ == "data_offsets")
      at_ = At::offsets;
    else
      misplaced("a list");
    return true;
  }
  bool end_array() {
    if (at_ == At::offsets && tensor_.offsets.size() != 2)
      fail("data_offsets has ", tensor_.offsets.size(), " numbers; it must be [begin, end]");
    at_ = At::tensor;
    return true;
  }
  bool key(std::string& key) {
    key_ = key;
    if (at_ == At::top) {
      if (key == kMetadata) {
        if (std::exchange(has_metadata_, true)) fail("is given twice");
      } else if (const char* fault = fault_of_tensor_name(key)) {
        fail(fault);
      } else {
        name_ = key;
      }
    } else if (at_ == At::metadata) {
      if (header_.metadata_.contains(key)) fail("the key ", shown_name(key), " is given twice");
      if (header_.metadata_.size() == kMaxMetadataKeys) fail("has more than ", kMaxMetadataKeys, " keys");
    } else {
      bool* const has = key == "dtype"          ? &tensor_.has_dtype
                        : key == "shape"        ? &tensor_.has_shape
                        : key == "data_offsets" ? &tensor_.has_offsets
                                                : nullptr;
      if (has == nullptr) fail("unknown key ", shown_name(key), "; a tensor has dtype, shape and data_offsets");
      if (std::exchange(*has, true)) fail("the key ", shown_name(key), " is given twice");
    }
    return true;
  }
  bool string(std::string& value) {
    if (at_ == At::metadata) {
      header_.metadata_.emplace(key_, std::string(value.data(), value.size()));  // copy without spare capacity
    } else if (at_ == At::tensor && key_ == "dtype") {
      const auto dtype = safetensors_dtype(value);
      if (!dtype) fail("unknown dtype ", shown_name(value, 40));
      tensor_.dtype = *dtype;
    } else {
      misplaced("a text");
    }
    return true;
  }
  bool number_unsigned(std::uint64_t value) {
    if (at_ != At::shape && at_ != At::offsets) misplaced("a number");
    if (value > kMaxNumber) fail(key_, " has the number ", value, "; at most 2^63 - 1 is allowed");
    std::vector<std::uint64_t>& list = at_ == At::shape ? tensor_.shape : tensor_.offsets;
    if (list.size() == kMaxSizes) fail(key_, " has more than ", kMaxSizes, " numbers");
    list.push_back(value);
    return true;
  }
  bool number_integer(std::int64_t value) { return not_whole(text(value)); }
  bool number_float(double, const std::string& digits) { return not_whole(digits); }
  bool boolean(bool) { return misplaced("true or false"); }
  bool null() { return misplaced("null"); }
  bool binary(json::binary_t&) { return misplaced("binary"); }  // does not occur in JSON text
  bool parse_error(std::size_t position, const std::string&, const json::exception& error) {
    const std::string_view what = error.what();
    if (at_ == At::after)
      throw CheckpointError(
          text(file_, ": the header goes on after its JSON, at byte ", position, "; only spaces may follow"));
    if (what.find("UTF-8") != std::string_view::npos)
      throw CheckpointError(text(file_, ": the header is not UTF-8, at byte ", position, kFetchAgain));
    throw CheckpointError(
        text(file_, ": the header is not JSON, at byte ", position, ": ", json_fault(what), kFetchAgain));
  }

 private:
  enum class At { before, top, metadata, tensor, shape, offsets, after };
  struct Tensor {
    std::vector<std::uint64_t> shape, offsets;
    SafetensorsDtype dtype = SafetensorsDtype::U8;
    bool has_dtype = false, has_shape = false, has_offsets = false;
  };
  static constexpr const char* kMetadata = "__metadata__";

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... rule) const {
    const bool of_metadata = at_ == At::metadata || (at_ == At::top && key_ == kMetadata);
    const std::string object = of_metadata         ? kMetadata
                               : at_ == At::before ? "the header"
                               : at_ == At::top    ? "tensor " + shown_name(key_)
                                                   : "tensor " + shown_name(name_);
    throw CheckpointError(text(file_, ": ", object, ": ", rule...));
  }
  [[noreturn]] bool misplaced(const char* found) const {
    switch (at_) {
      case At::before:
      case At::top: fail("must be an object, not ", found);
      case At::metadata: fail("the value of ", shown_name(key_), " must be a text, not ", found);
      case At::tensor: fail(key_, " must be ", key_ == "dtype" ? "a text" : "a list of whole numbers", ", not ", found);
      default: fail(key_, " must be a list of whole numbers; it holds ", found);
    }
  }
  [[noreturn]] bool not_whole(const std::string& digits) const {
    if (at_ != At::shape && at_ != At::offsets) misplaced("a number");
    fail(key_, " has the number ", digits.substr(0, 40), "; it must be a whole number from 0 to 2^63 - 1");
  }

  void add_tensor() {
    for (const auto& [has, key] : {std::pair{tensor_.has_dtype, "dtype"}, std::pair{tensor_.has_shape, "shape"},
                                   std::pair{tensor_.has_offsets, "data_offsets"}})
      if (!has) fail("has no ", key);
    if (header_.records_.size() == kMaxTensors)
      throw CheckpointError(text(file_, ": more than ", kMaxTensors, " tensors\n  fix: write them to several files"));
    const std::uint64_t begin = tensor_.offsets[0], end = tensor_.offsets[1];
    if (end < begin) fail("data_offsets [", begin, ", ", end, "]: the end is before the begin");
    if (end > data_bytes_)
      fail("data_offsets [", begin, ", ", end, "]: the file has only ", data_bytes_, " bytes after the header",
           kFetchAgain);
    check_bytes(end - begin);
    header_.records_.push_back({begin, end, kept_text(), static_cast<std::uint16_t>(name_.size()),
                                static_cast<std::uint8_t>(tensor_.shape.size()), tensor_.dtype,
                                static_cast<std::uint32_t>(header_.records_.size())});
  }

  /// The product ignores sizes of 0, so that no order of the sizes can hide an overflow.
  void check_bytes(std::uint64_t found) const {
    std::uint64_t product = static_cast<std::uint64_t>(bits(tensor_.dtype));
    bool empty = false;
    for (std::uint64_t size : tensor_.shape) {
      empty |= size == 0;
      if (__builtin_mul_overflow(product, std::max<std::uint64_t>(size, 1), &product) || product > kMaxNumber)
        fail("shape ", list_of(tensor_.shape), " of ", trireme::files::name(tensor_.dtype),
             ": the size overflows 64 bits");
    }
    const std::uint64_t wanted_bits = empty ? 0 : product;
    if (wanted_bits % 8 != 0)
      fail("shape ", list_of(tensor_.shape), " of ", trireme::files::name(tensor_.dtype), " has ", wanted_bits,
           " bits, which do not fill whole bytes");
    if (wanted_bits / 8 != found)
      fail("shape ", list_of(tensor_.shape), " of ", trireme::files::name(tensor_.dtype), " takes ", wanted_bits / 8,
           " bytes, but data_offsets [", tensor_.offsets[0], ", ", tensor_.offsets[1], "] hold ", found);
  }

  /// Copies name and sizes to stable storage. A number takes at most as many bytes here as it has digits in the JSON.
  const char* kept_text() {
    packed_ = name_;
    for (std::uint64_t size : tensor_.shape) {
      for (; size >= 0x80; size >>= 7) packed_ += static_cast<char>(size | 0x80);
      packed_ += static_cast<char>(size);
    }
    return header_.texts_.keep(packed_).data();
  }

  SafetensorsHeader& header_;
  std::uint64_t data_bytes_;
  const std::string& file_;
  At at_ = At::before;
  std::string key_, name_, packed_;
  Tensor tensor_;
  bool has_metadata_ = false;
};

SafetensorsHeader::SafetensorsHeader(std::string_view header, std::uint64_t data_bytes, const std::string& file) {
  require<CheckpointError>(header.starts_with('{'), file, ": the header does not start with {", kFetchAgain);
  const std::string_view unpadded = header.substr(0, header.find_last_not_of(' ') + 1);
  check_json_bounds(unpadded, file);
  Reader reader(*this, data_bytes, file);
  json::sax_parse(unpadded.begin(), unpadded.end(), &reader);
  require<CheckpointError>(unpadded.ends_with('}'), file,
                           ": the header goes on after its JSON with white space; only spaces may follow");
  index_names(file);
  check_tiling(data_bytes, file);
}

SafetensorsEntry SafetensorsHeader::entry(std::size_t index) const {
  const Record& record = records_.at(index);
  SafetensorsEntry entry{record.name(), record.dtype, {}, record.begin, record.end};
  entry.shape.reserve(record.num_sizes);
  const char* at = record.text + record.name_bytes;
  for (int i = 0; i < record.num_sizes; ++i) {
    std::uint64_t size = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(*at++);
      size |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) break;
    }
    entry.shape.push_back(static_cast<std::int64_t>(size));
  }
  return entry;
}

std::optional<std::size_t> SafetensorsHeader::find(std::string_view tensor) const {
  const std::uint64_t hash = std::hash<std::string_view>()(tensor);
  const auto found = std::ranges::partition_point(
      by_hash_, [&](const Hashed& h) { return h.hash != hash ? h.hash < hash : records_[h.record].name() < tensor; });
  if (found == by_hash_.end() || records_[found->record].name() != tensor) return std::nullopt;
  return found->record;
}

void SafetensorsHeader::check_tiling(std::uint64_t data_bytes, const std::string& file) const {
  std::uint64_t covered = 0;
  std::string_view last;
  for (const Record& record : records_) {
    if (record.begin < covered)
      throw CheckpointError(text(file, ": tensor ", shown_name(record.name()), ": data_offsets [", record.begin, ", ",
                                 record.end, "] overlap those of ", shown_name(last), ", which end at ", covered));
    if (record.begin > covered)
      throw CheckpointError(text(file, ": tensor ", shown_name(record.name()), ": data_offsets [", record.begin, ", ",
                                 record.end, "] leave a hole: the bytes from ", covered, " on are of no tensor"));
    covered = record.end;
    last = record.name();
  }
  require<CheckpointError>(covered == data_bytes, file, ": ", data_bytes - covered,
                           " bytes follow the last tensor, which ends at byte ", covered, " of the data", kFetchAgain);
}

void SafetensorsHeader::index_names(const std::string& file) {
  std::ranges::sort(records_, {}, [](const Record& r) { return std::tuple(r.begin, r.end, r.order); });
  static_assert(sizeof(Record) == 32 && sizeof(Hashed) == 16, "see Note [Memory of a header]");
  by_hash_.reserve(records_.size());
  for (const Record& record : records_)
    by_hash_.push_back({std::hash<std::string_view>()(record.name()), static_cast<std::uint32_t>(by_hash_.size())});
  // Sorted by name within equal hashes: a file built of hash collisions takes n log n steps, not n^2.
  std::ranges::sort(by_hash_, [this](const Hashed& a, const Hashed& b) {
    return a.hash != b.hash ? a.hash < b.hash : records_[a.record].name() < records_[b.record].name();
  });
  const auto twice = std::ranges::adjacent_find(by_hash_, [this](const Hashed& a, const Hashed& b) {
    return a.hash == b.hash && records_[a.record].name() == records_[b.record].name();
  });
  if (twice != by_hash_.end())
    throw CheckpointError(text(file, ": tensor ", shown_name(records_[twice->record].name()), ": is given twice"));
}

}  // namespace trireme::files
