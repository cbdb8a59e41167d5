#pragma once
// Watchdog of a rank: publishes its state through the store, and after a timeout or failure finds the missing ranks.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trireme/base/error.hpp"
#include "trireme/comm/calls/comm_options.hpp"
#include "trireme/comm/calls/flight_recorder.hpp"
#include "trireme/comm/group.hpp"
#include "trireme/comm/watch/hang_summary.hpp"

namespace trireme {

// Note [Diagnosis of a hang]
// After an alarm every rank publishes its calls. In a small world each rank that waits reads those of all others. In a
// large one that would be N * N records through one store: there one rank of each group reads the summaries of its
// members (hang_summary.hpp), and the calls of the few that differ, and publishes what it found for the rest.

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
  /// What the ranks have answered to an alarm.
  struct Answers {
    struct Answer {
      std::string where;  // "host, pid 12"
      std::string last_call;
      bool arrived = false;  // at the call that is asked about
    };
    std::map<int, Answer> ranks;
    std::map<int, std::vector<CallRecord>> calls;  // of their steps; in a large world of those that differ only
  };
  /// Why a call did not end, as far as the ranks can tell.
  struct Findings {
    std::vector<int> absent;
    std::string words;  // about the absent ones
    int came = 0, asked = 0;
    std::optional<std::string> difference;  // between the calls of two ranks
  };
  Findings findings(const Membership& members, const CallRecord& record, bool late);
  Findings own_findings(const Membership& members, const CallRecord& record, bool late);
  static std::string to_text(const Findings& findings);
  static std::optional<Findings> findings_from(const std::string& text);
  Answers ask(const Membership& members, const CallRecord& record, bool late);
  void add_absent(Findings& findings, const Membership& members, const CallRecord& record, const Answers& answers);
  std::string last_lines(int rank, const CallRecord& record, const std::string& how_it_ended) const;
  template <class Result, class Use>
  Result with_store(Result otherwise, Use use);
  static std::string key(const char* what, int rank);

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
  std::vector<std::uint8_t> published(const std::string& place);
  std::optional<Shown> shown_by(int rank);
  std::optional<RankSummary> summary_by(int rank);
  std::string last_seen(int rank);

  c10::intrusive_ptr<c10d::Store> store_;  // another one after a reconnect
  const std::shared_ptr<FlightRecorder> recorder_;
  const int world_size_;
  const CommOptions options_;
  const int lifeline_fd_;
  int wake_fd_;
  std::mutex store_mutex_;  // serializes requests; the thread must not end between request and response
  bool store_lost_ = false, answered_ = false;
  static constexpr std::chrono::milliseconds kFirstReconnect{500}, kLastReconnect{30'000}, kReconnectPatience{1000};
  std::atomic<bool> explains_ = false;  // an error that ends the process: it does not wait for a store that is lost
  std::chrono::milliseconds reconnect_after_ = kFirstReconnect;
  std::chrono::steady_clock::time_point reconnect_at_{};
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

/// The result of `use` on the store, or `otherwise` while its host does not answer. Groups do not need the store, so
/// work continues; whoever hosts it may have stood still for a moment, so it is asked again from time to time.
template <class Result, class Use>
Result Watchdog::with_store(Result otherwise, Use use) {
  const std::scoped_lock lock(store_mutex_);
  try {
    if (store_lost_) {
      if (explains_ || std::chrono::steady_clock::now() < reconnect_at_) return otherwise;
      const auto patience = store_->getTimeout();
      store_->setTimeout(std::min(patience, kReconnectPatience));
      auto again = store_->clone();
      again->setTimeout(patience);
      store_ = std::move(again);
      store_lost_ = false;
    }
    Result result = use();
    reconnect_after_ = kFirstReconnect;
    return result;
  } catch (const std::exception&) {
    store_lost_ = true;
    reconnect_at_ = std::chrono::steady_clock::now() + reconnect_after_;
    reconnect_after_ = std::min(2 * reconnect_after_, kLastReconnect);
    return otherwise;
  }
}

}  // namespace trireme
