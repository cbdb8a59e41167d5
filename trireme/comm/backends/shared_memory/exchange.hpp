#pragma once
// One collective call over shared memory, seen from one rank.
#include <functional>
#include <optional>
#include <vector>

#include "trireme/comm/backends/shared_memory/call_header.hpp"
#include "trireme/comm/backends/shared_memory/group_memory.hpp"

namespace trireme {

// Note [Exchange]
// Each rank writes a header and the data that others need to its own stream, and reads what it needs from the streams
// of the others: no byte passes through a third rank. Sums are in rank order, as those of ranks that are threads, and
// are made from the streams without another copy. An all_reduce of much data between more than two ranks takes two
// phases, as a ring does: each rank sums one part, then collects the other parts. The parts for the ranks are cut into
// blocks that take turns in a stream, so that all ranks can work at the same time, and none waits for another's part.

class Exchange {
 public:
  /// Rings the bell of a rank of the group.
  using Ring = std::function<void(int rank)>;
  /// Throws if a rank made another call than this one.
  using Compare = std::function<void(int rank, const CallRecord& theirs)>;

  /// `call` is checked; it holds its tensors until the exchange is destroyed.
  Exchange(GroupMemory& memory, Call call, const CallRecord& record, Ring ring, Compare compare);
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /// Writes what fits; true if anything moved. Exchanges of a group write, and read, in the order of their calls.
  bool write();
  bool read();
  bool is_written() const { return written_phases_ == phases_.size(); }
  bool is_done() const { return is_written() && read_phases_ == phases_.size(); }
  /// Whether nothing moves because of this rank.
  bool waits_for(int peer) const;

 private:
  struct Segment {
    std::size_t skipped = 0, taken = 0;  // bytes, in this order
  };
  /// What this rank takes from the part of a stream that belongs to a phase.
  struct Taking {
    std::vector<Segment> segments{};
    std::size_t after = 0;               // skipped at the end
    std::byte* to = nullptr;             // unless it is summed
    std::size_t segment = 0, taken = 0;  // where it is; bytes of that segment
    bool begun = false, done = false;

    std::size_t bytes() const;  // of the whole phase in the stream
  };
  struct Sum {
    std::span<const std::byte> mine;
    std::byte* to;
    std::size_t done = 0;
    bool over_input = false;  // `to` is also what this rank writes: no further than it has been written
  };
  struct Phase {
    std::vector<std::span<const std::byte>> writes;
    std::size_t head = 0;  // bytes of the header at the beginning of `writes`
    std::vector<Taking> takings;
    std::optional<Sum> sum;
  };

  void plan();
  /// Part `r` is what rank r writes, whole.
  static void take_parts(Phase& phase, const std::vector<std::span<std::byte>>& parts);
  /// `bytes` of each, but not of `root`, which reads them and writes nothing.
  static void skip_all_but(std::size_t root, Phase& phase, std::size_t bytes);
  void plan_all_reduce();
  /// Part `r` of the phase's data for rank r; each writes the parts of all others and takes its own.
  void plan_parts(Phase& phase, const std::vector<std::span<std::byte>>& parts);
  void plan_uneven();
  void finish_phase(Phase& phase);
  bool read_headers();
  bool take_copies(Phase& phase);
  bool take_sum(Phase& phase);
  bool is_begun(Phase& phase, int peer);
  void skip(int peer, Taking& taking);
  void take(int peer, Taking& taking, std::size_t bytes);
  void add_chunk(const Sum& sum, const std::vector<const std::byte*>& others, std::size_t bytes) const;
  void consume(int peer, std::size_t bytes);
  void read_counts(int peer);
  void ring_all() const;

  GroupMemory& memory_;
  const Call call_;
  const Ring ring_;
  const Compare compare_;
  const int me_, ranks_;
  CallHeader header_{};
  std::vector<std::int64_t> counts_;
  std::vector<Phase> phases_;
  std::size_t written_phases_ = 0, written_spans_ = 0, written_bytes_ = 0;  // bytes: of the span
  std::size_t phase_bytes_ = 0;                                             // written of the current phase
  std::size_t read_phases_ = 0;
  std::vector<char> has_header_;
  int headers_ = 0;
};

}  // namespace trireme
