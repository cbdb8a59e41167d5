#pragma once
// The part of an unsharded tensor that a rank holds, as local and global slices, and nanotron's text format for it.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

using Shape = std::vector<std::int64_t>;

/// Python's slice; nullopt is None.
struct Slice {
  std::optional<std::int64_t> start, stop, step;
  bool operator==(const Slice&) const = default;
};
using Slices = std::vector<Slice>;  // one per dim

/// begin <= index < end.
struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};
using Box = std::vector<Range>;  // one per dim

struct SlicesPair {
  Slices local_slices, global_slices;
  bool operator==(const SlicesPair&) const = default;
};

struct ShardedInfo {
  std::vector<int> global_ranks;                      // the ranks that the tensor is sharded over
  std::vector<SlicesPair> local_global_slices_pairs;  // of one of these ranks
  Shape unsharded_shape;
  bool operator==(const ShardedInfo&) const = default;
};

enum class ReduceOp { sum, avg, max, min };
const char* name(ReduceOp op);

/// A parameter that is tied: several ranks keep copies in sync.
struct TiedInfo {
  std::string name;         // one of the tied names, in the scope of `root_module`
  std::string root_module;  // its path; empty for the model itself
  std::vector<int> global_ranks;
  std::optional<ReduceOp> reduce_op;  // nullopt: the gradients are identical by construction, no reduction
  bool operator==(const TiedInfo&) const = default;
};

/// The number of elements; throws for negative sizes and for more than 2^60 elements.
std::int64_t numel(const Shape& shape);

/// Negative indices count from the end, as in Python. Unlike Python, throws CheckpointError for a bound outside the dim
/// instead of clamping it, and for every step except None and 1.
Range resolve(const Slice& slice, std::int64_t size);
Box resolve(const Slices& slices, const Shape& shape);

/// The slices begin:end with explicit bounds, and the inverse (InternalError if a bound is missing or negative).
Slices slices_of(const Box& box);
Box box_of(const Slices& slices);

/// `info` with every None and negative index resolved, for a rank whose tensor has shape `local_shape`.
/// Throws CheckpointError if the two slices of a pair have the wrong number of dims, are out of bounds or differ in
/// size, or if two pairs overlap.
ShardedInfo validated(const ShardedInfo& info, const Shape& local_shape);

// Note [Text of slices]: nanotron's format, used in the metadata of its safetensors files.
//   slice  "0,10,None"   slices of a tensor: joined by |   pair: local#global   pairs: joined by ;
//   "0,10,None|None,None,None#0,10,None|0,5,None;10,12,None|None,None,None#20,22,None|0,5,None"
// An empty list of pairs is "", a pair of a 0-dim tensor is "#". A shape is a Python tuple: "(32, 16)", "(32,)", "()";
// numpy's "(np.int64(32), 16)", which nanotron also writes, is accepted but never written. Parsing throws
// CheckpointError with the text, the position and the rule; sizes are bounded, so that no input can make parsing slow.
inline constexpr std::size_t kMaxPairs = 4096, kMaxDims = 64;

std::string str(const Slice& slice);
std::string str(const Slices& slices);
std::string str(const SlicesPair& pair);
std::string str(const std::vector<SlicesPair>& pairs);
std::string str(const Box& box);  // "[0:4, 8:16]", for messages
std::string tuple_text(const Shape& numbers);

std::vector<SlicesPair> parse_slices_pairs(std::string_view source);
Shape parse_tuple(std::string_view source);

/// "sum#(0, 4)#model#lm_head.weight": reduce_op or None, ranks, root module (which contains no #), name.
std::string str(const TiedInfo& info);
TiedInfo parse_tied_info(std::string_view source);

}  // namespace trireme
