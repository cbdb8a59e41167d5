#pragma once
// Which part of a whole tensor a rank keeps, as slices in local and global coordinates, and nanotron's text form of it.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

using Shape = std::vector<int64_t>;

/// Python's slice; nullopt is None.
struct Slice {
  std::optional<int64_t> start, stop, step;
  bool operator==(const Slice&) const = default;
};
using Slices = std::vector<Slice>;  // one a dim

/// begin <= index < end.
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};
using Box = std::vector<Range>;  // one a dim

struct SlicesPair {
  Slices local_slices, global_slices;
  bool operator==(const SlicesPair&) const = default;
};

struct ShardedInfo {
  std::vector<int> global_ranks;                      // the ranks that the tensor is cut over
  std::vector<SlicesPair> local_global_slices_pairs;  // of one of them
  Shape unsharded_shape;
  bool operator==(const ShardedInfo&) const = default;
};

enum class ReduceOp { sum, avg, max, min };
const char* name(ReduceOp op);

/// A parameter that several ranks keep in sync.
struct TiedInfo {
  std::string name;         // one of the tied names, in the scope of `root_module`
  std::string root_module;  // its path; empty for the model itself
  std::vector<int> global_ranks;
  std::optional<ReduceOp> reduce_op;  // nullopt: the gradients are alike by construction, do not reduce
  bool operator==(const TiedInfo&) const = default;
};

/// The number of elements; refuses negative sizes and more than 2^60 elements.
int64_t numel(const Shape& shape);

/// Negative indices count from the end, as in Python. Unlike Python, refuses a bound outside the dim instead of moving
/// it, and every step but None and 1 (CheckpointError).
Range resolve(const Slice& slice, int64_t size);
Box resolve(const Slices& slices, const Shape& shape);

/// The slices begin:end, with every number spelt out; and back, where they are spelt out (InternalError otherwise).
Slices slices_of(const Box& box);
Box box_of(const Slices& slices);

/// `info` with every None and negative index spelt out, for a rank whose tensor has shape `local_shape`.
/// CheckpointError where a pair has other dims than its tensors, leaves them, or differs in size; or where two pairs
/// overlap.
ShardedInfo validated(const ShardedInfo& info, const Shape& local_shape);

// Note [Text of slices]: nanotron's, as in the metadata of its safetensors files.
//   slice  "0,10,None"   slices of a tensor, by |   local#global   pairs, by ;
//   "0,10,None|None,None,None#0,10,None|0,5,None;10,12,None|None,None,None#20,22,None|0,5,None"
// No pairs is "", a pair of a tensor without dims is "#". A shape is a Python tuple: "(32, 16)", "(32,)", "()"; read,
// but never written, is numpy's "(np.int64(32), 16)", which nanotron writes too. Parsing throws CheckpointError with
// the text, the position and the rule; sizes are bounded, so that no file can make it slow.
inline constexpr size_t kMaxPairs = 4096, kMaxDims = 64;

std::string str(const Slice& slice);
std::string str(const Slices& slices);
std::string str(const SlicesPair& pair);
std::string str(const std::vector<SlicesPair>& pairs);
std::string str(const Box& box);  // "[0:4, 8:16]", for messages
std::string tuple_text(const Shape& numbers);

std::vector<SlicesPair> parse_slices_pairs(std::string_view source);
Shape parse_tuple(std::string_view source);

/// "sum#(0, 4)#model#lm_head.weight": reduce_op or None, ranks, root module (without #), name.
std::string str(const TiedInfo& info);
TiedInfo parse_tied_info(std::string_view source);

}  // namespace trireme
