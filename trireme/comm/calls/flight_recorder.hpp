#pragma once
// Flight recorder: the last calls of a rank in memory that outlives it, all calls of the step, and their checksum.
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/stopwatch.hpp"
#include "trireme/comm/calls/call.hpp"
#include "trireme/comm/calls/comm_options.hpp"

namespace trireme {

/// The last calls of a rank as trivially copyable data. A launcher gives each rank one in shared memory and reads it
/// after the rank has died or stopped; it may be read during a write, so readers must validate everything.
struct FlightRecord {
  static constexpr std::uint32_t kMagic = 0x54524d34;
  static constexpr int kCalls = 64;
  std::uint32_t magic = kMagic;
  std::int32_t rank = 0, world_size = 1, pid = 0;
  char host[64] = "";
  char place[64] = "";  // "tp0 pp1 dp0"
  Tag tag;
  std::uint64_t calls = 0;              // number of calls so far; call i is in ring[i % kCalls]
  std::uint64_t progress = 0;           // of long work between calls (comm/time_limit.hpp)
  std::uint64_t checkpoints = 0;        // committed so far: what a launcher that restarts the job takes for progress
  std::uint32_t commits_under_way = 0;  // a launcher that stops the job gives this rank time to finish them
  std::int64_t seen_ns = 0;             // steady clock of the last change
  CallRecord ring[kCalls];
};
static_assert(std::is_trivially_copyable_v<FlightRecord>);

/// Whether a record that somebody else wrote is complete: every field in its range, every word ended.
bool is_valid(const FlightRecord& box);
/// "step 12 phase=backward | all_reduce f32[8] group dp{0,2} seq 4 (waiting for 3.1 s)"; empty if nothing was recorded.
std::string last_call(const FlightRecord& box);
/// Every call in the record, oldest first, one per line, with explanations.
std::string calls_text(const FlightRecord& box);
/// Writes calls_text to folder/rankN.txt; returns the file name. On failure returns the reason instead of throwing: it
/// is called during error handling.
std::string dump_calls(const FlightRecord& box, const std::string& folder);

/// How long calls may take that start from now on, if not comm.timeout_s.
struct CallLimit {
  double seconds = 0;
  int awaited = -1;  // the time counts from the last progress of this world rank
};

/// When a rank waited for communication, by steady_ns().
struct WaitSpan {
  std::int64_t begin_ns = 0, end_ns = 0;
};

/// One per rank. Thread-safe.
class FlightRecorder {
 public:
  /// `shared`: the record to write to, if a launcher provides one.
  FlightRecorder(int rank, int world_size, FlightRecord* shared = nullptr);

  void set_tag(const Tag& tag);
  Tag tag() const;
  void set_place(const std::string& place);

  /// Sets the limit and returns the old one; nullopt: comm.timeout_s.
  std::optional<CallLimit> set_limit(std::optional<CallLimit> limit);
  std::optional<CallLimit> limit() const;
  void add_progress();
  std::uint64_t progress() const;

  /// A checkpoint is complete: from here on a restarted job does not begin where this one did.
  void checkpoint_committed();
  /// All files of a checkpoint are written, and it is about to appear; and the end of that, whatever came of it.
  void commit_begins();
  void commit_ends();
  bool is_committing() const;

  /// Records the start of a call: adds number, time and tag to `record` and stores it; if calls are compared at the end
  /// of the step, adds it to the checksum.
  void begin(CallRecord& record, int rank_in_group, int group_size, CheckMode check);
  void finish(const CallRecord& record);
  /// Adds the contribution of a message, or of a part of an uneven all_to_all, to the checksum.
  void add_to_checksum(std::uint64_t amount);

  /// Over all ranks of the world the checksums of one step sum to zero if all calls matched, and to a random number
  /// otherwise. Note [Checksum] in flight_recorder.cpp.
  std::uint64_t checksum() const;
  /// The calls of this step, oldest first; before them those of the last one, while it is being checked.
  std::vector<CallRecord> step_calls() const;
  /// Starts a new step with a new checksum.
  void start_step();
  /// The last step has been checked: its calls are dropped.
  void drop_last_step();

  /// Time that this rank spends in Pending::wait(): communication that nothing hid. On CUDA a wait only orders streams,
  /// and the time is in whatever asks the device next.
  void add_wait(const WaitSpan& wait);
  std::int64_t waited_ns() const { return waited_ns_; }
  /// For a trace: from now on the waits themselves are kept, without those of before; until take_waits().
  void keep_waits();
  std::vector<WaitSpan> take_waits();

  /// The most recently started call.
  CallRecord newest() const;
  FlightRecord snapshot() const;

 private:
  static constexpr std::size_t kStepCalls = 100'000;  // per step, kept to identify a mismatch

  mutable std::mutex mutex_;
  std::unique_ptr<FlightRecord> own_;
  FlightRecord* box_;
  std::uint64_t checksum_ = 0;
  std::optional<CallLimit> limit_;
  std::atomic<std::int64_t> waited_ns_{0};
  std::atomic<bool> keeps_waits_{false};
  std::vector<WaitSpan> waits_;
  std::vector<CallRecord> last_step_calls_, step_calls_;
  std::uint64_t step_first_ = 0;  // number of the first of them
};

}  // namespace trireme
