#pragma once
// Who talks to whom. A layer takes the Group it needs; nothing looks one up.
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/call.hpp"
#include "trireme/comm/comm_options.hpp"
#include "trireme/comm/flight_recorder.hpp"
#include "trireme/comm/pending.hpp"

namespace trireme {

/// What a group is, before anybody talks: its name, its members as world ranks in their order, and which of them we
/// are.
struct Membership {
  std::string name;
  int rank = 0;
  std::vector<int> world_ranks;

  int size() const { return static_cast<int>(world_ranks.size()); }
  /// "dp{0,2}"; of many ranks the first, the last and their number.
  std::string str() const;
};

/// Calls, and bytes that this rank sends by the best algorithm known (a ring): what a link has to carry.
struct Traffic {
  std::int64_t calls = 0, bytes = 0;
};

/// Ranks that talk. Every operation checks its arguments, is recorded and counted, starts at once and returns a
/// Pending; all ranks of the group must make the same calls in the same order. Tensors are contiguous, of one device,
/// and cut or joined along dim 0. An operation with `_` or `_into` writes to the tensor it is given; the others return
/// a new one, which in a group of one may be `x` itself. Ranks and roots are those of the group. A group is used by one
/// thread at a time and outlives its Pendings.
class Group {
 public:
  virtual ~Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return members_.rank; }
  int size() const { return members_.size(); }
  const std::string& name() const { return members_.name; }
  const std::vector<int>& world_ranks() const { return members_.world_ranks; }
  const std::string& str() const { return text_; }

  Pending all_reduce(const at::Tensor& x, Reduce reduce = Reduce::sum);
  Pending all_reduce_(at::Tensor x, Reduce reduce = Reduce::sum);

  /// Every rank's x, in rank order.
  Pending all_gather(const at::Tensor& x);
  Pending all_gather_into(at::Tensor out, const at::Tensor& x);

  /// x is cut into `size` parts; the result is the reduction of everybody's part number `rank`.
  Pending reduce_scatter(const at::Tensor& x, Reduce reduce = Reduce::sum);
  Pending reduce_scatter_into(at::Tensor out, const at::Tensor& x, Reduce reduce = Reduce::sum);

  /// Part i of x goes to rank i; the result is what came from rank 0, 1, ... The counts are rows, and may be zero.
  Pending all_to_all(const at::Tensor& x);
  Pending all_to_all(const at::Tensor& x, std::vector<std::int64_t> send_counts, std::vector<std::int64_t> recv_counts);
  Pending all_to_all_into(at::Tensor out, const at::Tensor& x, std::vector<std::int64_t> send_counts = {},
                          std::vector<std::int64_t> recv_counts = {});

  Pending broadcast_(at::Tensor x, int root);
  /// The result is for the root; on the others it is undefined.
  Pending reduce(const at::Tensor& x, int root, Reduce reduce = Reduce::sum);
  Pending gather(const at::Tensor& x, int root);
  /// `x` is the root's, and undefined on the others.
  Pending scatter_into(at::Tensor out, const at::Tensor& x, int root);

  Pending send(const at::Tensor& x, int to);
  Pending recv_(at::Tensor out, int from);
  /// All of them at once, in any order between the ranks: no deadlock. The result is undefined.
  Pending batch(std::vector<Message> messages);

  Pending barrier();

  /// Strict mode: the others must have come to the end of the step, too. World::end_step calls it for every group.
  void end_step();

  Traffic traffic(Op op) const { return traffic_[static_cast<std::size_t>(op)]; }
  Traffic traffic() const;
  FlightRecorder& recorder() const { return *recorder_; }
  const CommOptions& options() const { return options_; }

 protected:
  Group(Membership members, std::shared_ptr<FlightRecorder> recorder, CommOptions options);

  /// Moves the data. The arguments are right; avg is to be done as sum (finish() divides). nullptr: done already.
  virtual std::unique_ptr<CommWork> start(const Call& call, std::span<const CallRecord> records) = 0;
  /// Strict mode: throws unless the others make the same calls. `records` are one collective call or messages.
  virtual void compare(std::span<const CallRecord> records) = 0;
  /// Makes of a backend's exception the CommError that a person reads.
  [[noreturn]] virtual void fail(const CallRecord& record, const std::exception& cause) = 0;

 private:
  friend class Pending;
  friend class ThrottledGroup;

  Pending run(Call call, at::Tensor result);
  void finish(Call& call, std::span<const CallRecord> records, CommWork* flight);
  CallRecord begin(const CallRecord& shape);
  std::vector<CallRecord> begin_all(const Call& call);
  void count(const Call& call);

  const Membership members_;
  const std::string text_;
  const std::uint64_t text_hash_;
  const std::shared_ptr<FlightRecorder> recorder_;
  const CommOptions options_;
  std::uint64_t collectives_ = 0;
  std::vector<std::uint64_t> sent_, received_;  // messages so far, by the other rank
  std::array<Traffic, kOps> traffic_{};
};

/// Throws unless `call` is one that a group of `size` ranks can make as rank `rank`; `where` names the group.
void check_call(const Call& call, int rank, int size, const std::string& where);

}  // namespace trireme
