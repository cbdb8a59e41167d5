#pragma once
// A communication call as data: its arguments, and its record, which is compared between ranks, stored and printed.
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trireme {

/// The last three transfer no user data of their own: `replay` stands for the calls in a CUDA graph, `step_end` marks
/// the end of a step in the records.
enum class Op : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  broadcast,
  reduce,
  gather,
  scatter,
  send,
  recv,
  batch,
  replay,
  barrier,
  step_end
};
inline constexpr int kOps = static_cast<int>(Op::step_end) + 1;
const char* name(Op op);

enum class Reduce : std::uint8_t { sum, max, min, avg };
const char* name(Reduce reduce);

/// "f32", "bf16", "i64": the short dtype names in records and messages.
const char* dtype_name(at::ScalarType dtype);

/// One send or receive of a batch.
struct Message {
  Op op = Op::send;
  at::Tensor tensor{};
  int peer = -1;
  static Message send(at::Tensor x, int to) { return {Op::send, std::move(x), to}; }
  static Message recv(at::Tensor out, int from) { return {Op::recv, std::move(out), from}; }
};

struct Call {
  Op op = Op::barrier;
  Reduce reduce = Reduce::sum;
  int peer = -1;                                           // root, or peer of a send or receive, as a rank of the group
  at::Tensor input{}, output{};                            // all_reduce and broadcast are in place on `output`
  std::vector<std::int64_t> send_counts{}, recv_counts{};  // rows per rank, for an uneven all_to_all
  std::vector<Message> messages{};                         // of a batch
};

/// The current step and phase of a rank: set by the training loop, stored with every call.
struct Tag {
  std::int64_t step = -1;
  char phase[24] = "";
  std::int32_t bucket = -1, buckets = 0;

  Tag() = default;
  Tag(std::int64_t at_step, const std::string& at_phase, int at_bucket = -1, int of_buckets = 0);
  bool operator==(const Tag&) const = default;
  /// "step 12 phase=backward bucket 3/17"
  std::string str() const;
};

/// A call as trivially copyable data: stored in shared memory, sent between ranks, and compared.
struct CallRecord {
  static constexpr int kDims = 6;
  std::uint64_t seq = 0;                         // sequence number in its group, from 1
  std::int64_t started_ns = 0, finished_ns = 0;  // steady clock; 0: not finished
  Op op = Op::barrier;
  Reduce reduce = Reduce::sum;
  std::int8_t dtype = -1;  // at::ScalarType; -1: no tensor
  std::int8_t dims = 0;
  std::int32_t peer = -1;          // as in Call
  std::int64_t sizes[kDims] = {};  // of the tensor that must match; with more dims the last holds the product
  Tag tag{};
  char group[48] = "";        // "dp{0,2}", truncated if longer
  std::uint64_t number = 0;   // of all calls of this rank, from 0
  double limit_s = 0;         // timeout of this call; with `awaited`, for the time without progress
  std::int32_t awaited = -1;  // world rank whose progress keeps this call waiting (comm/time_limit.hpp)

  /// "all_reduce sum f32[1048576]"
  std::string what() const;
  /// what(), group, sequence number and tag
  std::string str() const;
  bool pairwise() const { return op == Op::send || op == Op::recv; }
  std::int64_t elements() const;  // of `sizes`
};
static_assert(std::is_trivially_copyable_v<CallRecord>);

/// Whether every field of a record that others have written is in its range, and its words end.
bool is_valid(const CallRecord& record);

/// The record of `call` without sequence number, time, tag and group. The sizes are those of the tensor that must match
/// on all ranks for this operation; for an uneven all_to_all only the size of a row.
CallRecord record_of(const Call& call);

/// Whether two ranks of a group made the same collective call, including the tag, excluding times.
bool same_call(const CallRecord& a, const CallRecord& b);
/// Whether a receive matches its send.
bool same_message(const CallRecord& sent, const CallRecord& received);

/// Equal for two records if and only if same_call, except with probability 2^-64.
std::uint64_t hash_of(const CallRecord& record);
/// The same for a message between two ranks: both ends compute the same hash.
std::uint64_t hash_of_message(std::uint64_t group, int from, int to, std::uint64_t count, int dtype,
                              std::int64_t elements);

}  // namespace trireme
