#include "trireme/comm/watch/watchdog.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <thread>
#include <utility>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "trireme/base/stop_signals.hpp"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBeatMs = 500;

/// Ends the process, after a commit of a checkpoint that is under way: its files are complete, and would be lost.
/// Flushes stdio buffers, unless another thread holds the lock.
[[noreturn]] void leave(const FlightRecorder& recorder, ExitCode code) {
  const auto end = Clock::now() + std::chrono::seconds(30);
  while (recorder.is_committing() && Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  if (ftrylockfile(stdout) == 0) fflush_unlocked(stdout);
  _exit(static_cast<int>(code));
}

}  // namespace

Watchdog::Watchdog(c10::intrusive_ptr<c10d::Store> store, std::shared_ptr<FlightRecorder> recorder, int world_size,
                   CommOptions options, int lifeline_fd)
    : store_(std::move(store)),
      recorder_(std::move(recorder)),
      world_size_(world_size),
      options_(std::move(options)),
      lifeline_fd_(lifeline_fd),
      wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { run(); }) {}

Watchdog::~Watchdog() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(wake_fd_, &one, sizeof one);
  thread_.join();
  close(wake_fd_);
}

std::chrono::milliseconds Watchdog::beat(int world_size) {
  return std::chrono::milliseconds(std::max(kBeatMs, 2 * world_size));
}

// A rank answers at its next beat. After a timeout all ranks are asked at about the same time, and there is no hurry.
std::chrono::milliseconds Watchdog::patience(int world_size, bool late) {
  return (late ? 2 : 1) * beat(world_size) + std::chrono::milliseconds(200 * (late ? 2 : 1) + world_size);
}

void Watchdog::run() {
  for (auto next = Clock::now();; next = Clock::now() + beat(world_size_)) {
    for (;;) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(next - Clock::now()).count();
      pollfd fds[] = {{wake_fd_, POLLIN, 0}, {lifeline_fd_, POLLIN, 0}};
      const int ready = poll(fds, lifeline_fd_ >= 0 ? 2 : 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
      if (ready > 0 && fds[0].revents != 0) return;
      if (ready > 0 && fds[1].revents != 0 && lifeline_cut()) {
        dump_calls(recorder_->snapshot(), options_.hang_folder);
        leave(*recorder_, ExitCode::peer_lost);
      }
      if (ready == 0) break;
    }
    check_watched();
    if (StopSignals::record_asked())
      std::cerr << text("SIGUSR2: the last calls of this rank: ",
                        dump_calls(recorder_->snapshot(), options_.hang_folder), "\n")
                << std::flush;
    with_store(false, [this] {
      show_state();
      if (!answered_ && store_->check({"watchdog/alarm"})) answer_alarm();
      return true;
    });
  }
}

bool Watchdog::store_is_lost() {
  const std::scoped_lock lock(store_mutex_);
  return store_lost_;
}

bool Watchdog::lifeline_cut() {
  char word = 0;
  const auto n = read(lifeline_fd_, &word, 1);
  return n == 0 || (n == 1 && word == 'S');
}

void Watchdog::add_group(std::shared_ptr<const Membership> members) {
  const std::scoped_lock lock(watched_mutex_);
  groups_.push_back(std::move(members));
}

std::shared_ptr<const Membership> Watchdog::group_of(const CallRecord& record) {
  const std::scoped_lock lock(watched_mutex_);
  for (const auto& members : groups_)
    if (members->str().substr(0, sizeof record.group - 1) == record.group) return members;
  return nullptr;
}

void Watchdog::end_process(const Membership& members, const CallRecord& record, const std::string& cause) {
  const CommError error = explain(members, record, cause);
  std::cerr << "error: " << error.what() << std::endl;
  leave(*recorder_, error.exit_code());
}

void Watchdog::end_process(const std::string& cause) {
  const FlightRecord box = recorder_->snapshot();
  const std::uint64_t n = std::min<std::uint64_t>(box.calls, FlightRecord::kCalls);
  for (std::uint64_t i = box.calls - n; i < box.calls; ++i) {
    const CallRecord& record = box.ring[i % FlightRecord::kCalls];
    if (record.finished_ns != 0) continue;
    if (const auto members = group_of(record)) end_process(*members, record, cause);
  }
  std::cerr << "error: " << cause << std::endl;
  leave(*recorder_, ExitCode::internal);
}

void Watchdog::watch(std::shared_ptr<const Membership> members, const CallRecord& record, std::function<bool()> done) {
  const std::scoped_lock lock(watched_mutex_);
  watched_.push_back({std::move(members), record, std::move(done)});
}

/// With an awaited rank the time counts from its last progress, as seen in the store by the clock of this rank.
bool Watchdog::is_late(const CallRecord& record) {
  const std::int64_t now = steady_ns();
  std::int64_t since = record.started_ns;
  if (record.awaited >= 0) {
    Progress& progress = progress_[record.awaited];
    const std::string seen = with_store(progress.seen, [&] {
      const std::string at = key("progress", record.awaited);
      return store_->check({at}) ? store_->get_to_str(at) : std::string();
    });
    if (seen != std::exchange(progress.seen, seen)) progress.changed_ns = now;
    since = std::max(since, progress.changed_ns);
  }
  return static_cast<double>(now - since) * 1e-9 > record.limit_s;
}

void Watchdog::check_watched() {
  std::optional<Watched> late;
  {
    const std::scoped_lock lock(watched_mutex_);
    std::erase_if(watched_, [](const Watched& w) { return w.done(); });
    for (const Watched& w : watched_)
      if (is_late(w.record)) late = w;
  }
  if (late) end_process(*late->members, late->record, "Timed out");
  // A call that waits for another rank's long work has no other timeout.
  const FlightRecord box = recorder_->snapshot();
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(box.calls, FlightRecord::kCalls); ++i) {
    const CallRecord& record = box.ring[i];
    if (record.awaited < 0 || record.finished_ns != 0 || !is_late(record)) continue;
    if (const auto members = group_of(record)) end_process(*members, record, "Timed out");
  }
}

}  // namespace trireme
