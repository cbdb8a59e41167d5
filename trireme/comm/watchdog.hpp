#pragma once
// Watchdog of a rank: publishes its state through the store, and after a timeout or failure finds the missing ranks.
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trireme/base/error.hpp"
#include "trireme/comm/comm_options.hpp"
#include "trireme/comm/flight_recorder.hpp"
#include "trireme/comm/group.hpp"

namespace trireme {

/// A background thread writes the current call of this rank to the store, about once per second, and checks whether any
/// rank has raised an alarm; then every rank publishes the calls of its step and writes its flight record to a file. On
/// SIGUSR2 (base/stop_signals.hpp) it only writes that file.
class Watchdog {
 public:
  /// `lifeline_fd`: a pipe from the launcher (runtime/launcher/launch.hpp). On EOF, or on an 'S', the process writes
  /// its flight record and exits; -1: none.
  Watchdog(c10::intrusive_ptr<c10d::Store> store, std::shared_ptr<FlightRecorder> recorder, int world_size,
           CommOptions options, int lifeline_fd = -1);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Raises the alarm and converts a failed call to an error that names the missing ranks and their last known calls.
  CommError explain(const Membership& members, const CallRecord& record, const std::string& cause);

  /// The same for the call this rank is currently in: for failures that are not thrown by a call. Ends the process.
  [[noreturn]] void end_process(const std::string& cause);

  /// Registers a group of this rank.
  void add_group(std::shared_ptr<const Membership> members);

  /// Watches a call that no thread waits for (on a GPU): after a timeout the process reports it and exits.
  void watch(std::shared_ptr<const Membership> members, const CallRecord& record, std::function<bool()> done);

  /// Interval at which each rank publishes its state and looks for alarms; longer in large worlds, so that the load on
  /// the store stays constant.
  static std::chrono::milliseconds beat(int world_size);
  /// How long to wait for the answer of a rank that is alive.
  static std::chrono::milliseconds patience(int world_size, bool late);

 private:
  struct Shown {
    FlightRecord box;
    std::vector<CallRecord> calls;  // of the step
  };
  using AllShown = std::map<int, Shown>;  // by rank
  struct Absent {
    std::vector<int> ranks;
    std::string words;
    int came = 0, asked = 0;
  };
  AllShown ask(const Membership& members, bool late);
  Absent absent_from(const Membership& members, const CallRecord& record, const AllShown& shown);
  std::string last_lines(int rank, const CallRecord& record, const std::string& how_it_ended) const;
  template <class Result, class Use>
  Result with_store(Result otherwise, Use use);

  struct Watched {
    std::shared_ptr<const Membership> members;
    CallRecord record;
    std::function<bool()> done;
  };

  void run();
  bool store_is_lost();
  bool lifeline_cut();
  void show_state();
  void answer_alarm();
  void check_watched();
  bool is_late(const CallRecord& record);
  std::shared_ptr<const Membership> group_of(const CallRecord& record);
  [[noreturn]] void end_process(const Membership& members, const CallRecord& record, const std::string& cause);
  void raise_alarm(bool late);
  std::string who_was_late(double waited, const CallRecord& record);
  std::optional<Shown> shown_by(int rank);
  std::string last_seen(int rank);

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::shared_ptr<FlightRecorder> recorder_;
  const int world_size_;
  const CommOptions options_;
  const int lifeline_fd_;
  int wake_fd_;
  std::mutex store_mutex_;  // serializes requests; the thread must not end between request and response
  bool store_lost_ = false, answered_ = false;
  std::mutex watched_mutex_;
  std::vector<Watched> watched_;
  std::vector<std::shared_ptr<const Membership>> groups_;
  struct Progress {
    std::string seen;
    std::int64_t changed_ns = 0;
  };
  std::map<int, Progress> progress_;  // of awaited ranks; only used by the thread
  std::uint64_t shown_progress_ = 0;
  std::thread thread_;
};

}  // namespace trireme
