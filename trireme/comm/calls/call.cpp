#include "trireme/comm/calls/call.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

/// One round of splitmix64: every bit of `x` changes about half the bits of the result.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

constexpr int kMaxDims = 64;  // of a tensor of torch

std::uint64_t chained(std::uint64_t hash, std::uint64_t word) { return mixed(hash ^ mixed(word)); }

/// The tensor whose shape must match on all ranks of the group; undefined if there is none.
const at::Tensor& common_tensor(const Call& call) {
  switch (call.op) {
    case Op::all_reduce:
    case Op::broadcast:
    case Op::scatter:
    case Op::recv: return call.output;
    default: return call.input;  // undefined for operations that have none
  }
}

}  // namespace

const char* name(Op op) {
  static constexpr std::array<const char*, kOps> kNames{
      "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce",  "gather",
      "scatter",    "send",       "recv",           "batch",      "replay",    "barrier", "end of the step"};
  return kNames[static_cast<std::size_t>(op)];
}

const char* name(Reduce reduce) {
  static constexpr std::array<const char*, 4> kNames{"sum", "max", "min", "avg"};
  return kNames[static_cast<std::size_t>(reduce)];
}

const char* dtype_name(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat: return "f32";
    case at::kDouble: return "f64";
    case at::kBFloat16: return "bf16";
    case at::kHalf: return "f16";
    case at::kLong: return "i64";
    case at::kInt: return "i32";
    case at::kShort: return "i16";
    case at::kChar: return "i8";
    case at::kByte: return "u8";
    case at::kBool: return "bool";
    default: return c10::toString(dtype);
  }
}

Tag::Tag(std::int64_t at_step, const std::string& at_phase, int at_bucket, int of_buckets)
    : step(at_step), bucket(at_bucket), buckets(of_buckets) {
  at_phase.copy(phase, sizeof phase - 1);
}

std::string Tag::str() const {
  std::string words;
  const auto add = [&words](const std::string& word) { words += (words.empty() ? "" : " ") + word; };
  if (step >= 0) add(text("step ", step));
  if (phase[0] != '\0') add(text("phase=", phase));
  if (bucket >= 0) add(buckets > 0 ? text("bucket ", bucket, "/", buckets) : text("bucket ", bucket));
  return words;
}

bool is_valid(const CallRecord& record) {
  const auto ends = [](const auto& word) { return std::memchr(word, '\0', sizeof word) != nullptr; };
  return static_cast<int>(record.op) < kOps && record.reduce <= Reduce::avg && record.dtype >= -1 &&
         record.dtype < static_cast<int>(at::ScalarType::NumOptions) && record.dims >= 0 && record.dims <= kMaxDims &&
         record.sizes[0] >= (record.op == Op::all_to_all ? -1 : 0) &&  // -1: the ranks have different numbers of rows
         std::all_of(
             std::begin(record.sizes) + 1, std::end(record.sizes), [](std::int64_t n) { return n >= 0; }) &&
         record.peer >= -1 && record.awaited >= -1 && std::isfinite(record.limit_s) && ends(record.group) &&
         ends(record.tag.phase);
}

std::int64_t CallRecord::elements() const {
  std::int64_t n = 1;
  for (int d = 0; d < std::min<int>(dims, kDims); ++d) n *= sizes[d];
  return n;
}

std::string CallRecord::what() const {
  std::string words = name(op);
  if (op == Op::all_reduce || op == Op::reduce_scatter || op == Op::reduce) words += text(" ", name(reduce));
  if (dtype >= 0) {
    words += text(" ", dtype_name(static_cast<at::ScalarType>(dtype)), "[");
    for (int d = 0; d < std::min<int>(dims, kDims); ++d) words += text(d == 0 ? "" : ",", sizes[d]);
    words += "]";
  }
  if (peer >= 0) words += text(op == Op::send ? " to" : op == Op::recv ? " from" : " root", " ", peer);
  return words;
}

std::string CallRecord::str() const {
  const std::string at = tag.str();
  return text(what(), " group ", group, " seq ", seq, at.empty() ? "" : " | ", at);
}

CallRecord record_of(const Call& call) {
  CallRecord record;
  record.op = call.op;
  record.reduce = call.reduce;
  record.peer = call.peer;
  const at::Tensor& tensor = common_tensor(call);
  if (!tensor.defined()) return record;
  record.dtype = static_cast<std::int8_t>(tensor.scalar_type());
  record.dims = static_cast<std::int8_t>(std::min<std::int64_t>(tensor.dim(), 127));
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    if (d < CallRecord::kDims)
      record.sizes[d] = tensor.size(d);
    else
      record.sizes[CallRecord::kDims - 1] *= tensor.size(d);
  }
  if (!call.send_counts.empty() && record.dims > 0) record.sizes[0] = -1;  // the number of rows differs per rank
  return record;
}

bool same_call(const CallRecord& a, const CallRecord& b) {
  return a.seq == b.seq && a.op == b.op && a.reduce == b.reduce && a.dtype == b.dtype && a.dims == b.dims &&
         a.peer == b.peer && std::equal(std::begin(a.sizes), std::end(a.sizes), std::begin(b.sizes)) && a.tag == b.tag;
}

bool same_message(const CallRecord& sent, const CallRecord& received) {
  return sent.op == Op::send && received.op == Op::recv && sent.dtype == received.dtype && sent.dims == received.dims &&
         std::equal(std::begin(sent.sizes), std::end(sent.sizes), std::begin(received.sizes));
}

std::uint64_t hash_of(const CallRecord& r) {
  std::uint64_t hash =
      chained(r.seq, (static_cast<std::uint64_t>(r.op) << 32) | (static_cast<std::uint64_t>(r.reduce) << 24) |
                         (static_cast<std::uint64_t>(static_cast<std::uint8_t>(r.dtype)) << 16) |
                         static_cast<std::uint8_t>(r.dims));
  hash = chained(hash, static_cast<std::uint64_t>(r.peer));
  for (int d = 0; d < std::min<int>(r.dims, CallRecord::kDims); ++d)
    hash = chained(hash, static_cast<std::uint64_t>(r.sizes[d]));
  hash = chained(hash, static_cast<std::uint64_t>(r.tag.step));
  hash = chained(hash, (static_cast<std::uint64_t>(r.tag.bucket) << 32) ^ static_cast<std::uint64_t>(r.tag.buckets));
  std::array<std::uint64_t, sizeof(Tag::phase) / 8> phase;
  std::memcpy(phase.data(), r.tag.phase, sizeof r.tag.phase);
  for (std::uint64_t word : phase) hash = chained(hash, word);
  return hash;
}

std::uint64_t hash_of_message(std::uint64_t group, int from, int to, std::uint64_t count, int dtype,
                              std::int64_t elements) {
  std::uint64_t hash = chained(group, (static_cast<std::uint64_t>(from) << 32) | static_cast<std::uint32_t>(to));
  hash = chained(hash, count);
  return chained(chained(hash, static_cast<std::uint64_t>(dtype)), static_cast<std::uint64_t>(elements));
}

}  // namespace trireme
