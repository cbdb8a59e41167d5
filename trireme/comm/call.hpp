#pragma once
// One communication as data: what a rank asks of its group, and the record of it that is compared, kept and printed.
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trireme {

/// The last two move no data of the caller's: `step_end` stands in the records where a rank ended its step.
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
  barrier,
  step_end
};
inline constexpr int kOps = static_cast<int>(Op::step_end) + 1;
const char* name(Op op);

enum class Reduce : std::uint8_t { sum, max, min, avg };
const char* name(Reduce reduce);

/// "f32", "bf16", "i64": how records and messages write a dtype.
const char* dtype_name(at::ScalarType dtype);

/// A send or a receive of a batch.
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
  int peer = -1;                 // the root, or the other rank of a send or receive, as ranks of the group
  at::Tensor input{}, output{};  // all_reduce and broadcast work on `output` in place
  std::vector<std::int64_t> send_counts{}, recv_counts{};  // rows for each rank, of an uneven all_to_all
  std::vector<Message> messages{};                         // of a batch
};

/// Where in its work a rank is: set by whoever drives the step, kept with every call.
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

/// A call as plain bytes: it lies in shared memory, travels between ranks, and is compared.
struct CallRecord {
  static constexpr int kDims = 6;
  std::uint64_t seq = 0;                         // in its group, from 1
  std::int64_t started_ns = 0, finished_ns = 0;  // steady clock; not finished: 0
  Op op = Op::barrier;
  Reduce reduce = Reduce::sum;
  std::int8_t dtype = -1;  // at::ScalarType; -1: no tensor
  std::int8_t dims = 0;
  std::int32_t peer = -1;          // as in Call
  std::int64_t sizes[kDims] = {};  // of what must be alike; of more dims the last holds the product
  Tag tag{};
  char group[48] = "";  // "dp{0,2}", cut short where it is longer

  /// "all_reduce sum f32[1048576]"
  std::string what() const;
  /// what(), group, sequence number and tag
  std::string str() const;
  bool pairwise() const { return op == Op::send || op == Op::recv; }
};
static_assert(std::is_trivially_copyable_v<CallRecord>);

/// The record of `call` without number, time, tag and group. For each operation the sizes are those of the tensor that
/// all ranks have alike; of an uneven all_to_all only the rows' own.
CallRecord record_of(const Call& call);

/// Whether two ranks of a group made the same collective call, the tag included; times apart.
bool same_call(const CallRecord& a, const CallRecord& b);
/// Whether a receive fits the send that it meets.
bool same_message(const CallRecord& sent, const CallRecord& received);

/// A number that two records share exactly when same_call, but for one chance in 2^64.
std::uint64_t hash_of(const CallRecord& record);
/// The same for a message from a rank to a rank: both ends compute it alike.
std::uint64_t hash_of_message(std::uint64_t group, int from, int to, std::uint64_t count, int dtype,
                              std::int64_t elements);

}  // namespace trireme
