#pragma once
// Process group: collectives and messages between a set of ranks. Layers are given their Group; there is no registry.
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "trireme/comm/calls/call.hpp"
#include "trireme/comm/calls/comm_options.hpp"
#include "trireme/comm/calls/flight_recorder.hpp"
#include "trireme/comm/pending.hpp"

namespace trireme {

/// Identity of a group, before it is connected: its name, its members as world ranks in order, and which of them is
/// this rank.
struct Membership {
  std::string name;
  int rank = 0;
  std::vector<int> world_ranks;

  int size() const { return static_cast<int>(world_ranks.size()); }
  /// "dp{0,2}"; for many ranks the first, the last and their number.
  std::string str() const;
};

/// Number of calls, and bytes sent by this rank with the best known algorithm (a ring): the load on a link.
struct Traffic {
  std::int64_t calls = 0, bytes = 0;
};

/// Ranks that communicate. Every operation checks its arguments, is recorded and counted, starts immediately and
/// returns a Pending; all ranks of the group must make the same calls in the same order. Tensors are contiguous, on one
/// device, and split or concatenated along dim 0. An operation with `_` or `_into` writes to the given tensor; the
/// others return a new one, which in a group of one may be `x` itself. Ranks and roots are ranks of the group. A group
/// may be used by one thread at a time and must outlive its Pendings.
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

  /// x is split into `size` parts; the result is the reduction of part `rank` over all ranks.
  Pending reduce_scatter(const at::Tensor& x, Reduce reduce = Reduce::sum);
  Pending reduce_scatter_into(at::Tensor out, const at::Tensor& x, Reduce reduce = Reduce::sum);

  /// Part i of x goes to rank i; the result is the parts from ranks 0, 1, ... The counts are rows, and may be zero.
  Pending all_to_all(const at::Tensor& x);
  Pending all_to_all(const at::Tensor& x, std::vector<std::int64_t> send_counts, std::vector<std::int64_t> recv_counts);
  Pending all_to_all_into(at::Tensor out, const at::Tensor& x, std::vector<std::int64_t> send_counts = {},
                          std::vector<std::int64_t> recv_counts = {});

  Pending broadcast_(at::Tensor x, int root);
  /// The result is only defined on the root.
  Pending reduce(const at::Tensor& x, int root, Reduce reduce = Reduce::sum);
  Pending gather(const at::Tensor& x, int root);
  /// `x` is read on the root, and undefined on the others.
  Pending scatter_into(at::Tensor out, const at::Tensor& x, int root);

  Pending send(const at::Tensor& x, int to);
  Pending recv_(at::Tensor out, int from);
  /// Starts all of them concurrently; the order may differ between the ranks: no deadlock. The result is undefined.
  Pending batch(std::vector<Message> messages);

  Pending barrier();

  /// After a CUDA graph with calls of this group has been enqueued. The watchdog watches the graph as one call, and the
  /// comparison of calls finds a rank that has not enqueued it.
  Pending replay();

  /// Strict mode: checks that the other ranks have also reached the end of the step. Called by World::end_step.
  void end_step();

  Traffic traffic(Op op) const { return traffic_[static_cast<std::size_t>(op)]; }
  Traffic traffic() const;
  FlightRecorder& recorder() const { return *recorder_; }
  const CommOptions& options() const { return options_; }
  /// The GPU of this rank, if the job communicates over NCCL, which takes no tensors of the host. (A group of one rank
  /// does.) None: tensors of any device are taken.
  virtual std::optional<at::Device> only_device() const { return std::nullopt; }
  /// What carries the data to other processes: "nccl", "gloo" or "shared memory"; empty: none (ranks are threads).
  virtual std::string transport() const { return ""; }

 protected:
  Group(Membership members, std::shared_ptr<FlightRecorder> recorder, CommOptions options);

  /// Transfers the data. Arguments have been checked; avg is computed as sum (finish() divides). nullptr: already done.
  virtual std::unique_ptr<CommWork> start(const Call& call, std::span<const CallRecord> records) = 0;
  /// Strict mode: compares with the calls of the other ranks. `records` are one collective call, which has been
  /// compared on return (nullptr), or messages, which are compared in wait() of the result. Throws if they differ.
  virtual std::unique_ptr<CommWork> compare(std::span<const CallRecord> records) = 0;
  /// The timeout of the calls that start from now on. Backends that cannot interrupt a call leave it to the watchdog.
  virtual void set_time_limit(double /*seconds*/) {}
  /// Converts a backend's exception to a CommError with a readable message.
  [[noreturn]] virtual void fail(const CallRecord& record, const std::exception& cause) = 0;

 private:
  friend class Pending;
  friend class ThrottledGroup;

  Pending run(Call call, at::Tensor result);
  void finish(Call& call, std::span<const CallRecord> records, CommWork* work);
  CallRecord begin(const CallRecord& shape);
  void use_limit_of(const CallRecord& record);
  std::vector<CallRecord> begin_all(const Call& call);
  void count(const Call& call);

  const Membership members_;
  const std::string text_;
  const std::uint64_t text_hash_;
  const std::shared_ptr<FlightRecorder> recorder_;
  const CommOptions options_;
  std::uint64_t collectives_ = 0;
  double limit_s_;                              // of the backend
  std::vector<std::uint64_t> sent_, received_;  // message counts by peer rank
  std::array<Traffic, kOps> traffic_{};
};

/// Throws unless `call` is valid for rank `rank` of a group of `size` ranks; `where` names the group.
void check_call(const Call& call, int rank, int size, const std::string& where);

}  // namespace trireme
