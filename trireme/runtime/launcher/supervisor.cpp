#include "trireme/runtime/launcher/supervisor.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/base/stop_signals.hpp"
#include "trireme/runtime/launcher/orphan_reaper.hpp"
#include "trireme/runtime/launcher/rank_output.hpp"
#include "trireme/runtime/launcher/signal_relay.hpp"

namespace trireme::launcher {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

constexpr milliseconds kWithoutPidfd(10);     // old kernels and strict containers: polling interval
constexpr milliseconds kGiveUpAfter(10'000);  // after SIGKILL: stuck in the kernel
constexpr std::size_t kLastWords = 20;
constexpr int kPeerLost = static_cast<int>(ExitCode::peer_lost);

constexpr std::pair<int, char> kSignalBytes[] = {{SIGINT, 'I'},  {SIGTERM, 'T'}, {SIGHUP, 'H'},
                                                 {SIGUSR1, '1'}, {SIGUSR2, '2'}, {SIGCONT, 'C'}};

struct Living {
  pid_t pid = -1;  // -1: not started, or reaped
  OwnedFd pidfd{}, lifeline{};
  RankOutput output;
  bool echoes = false;  // its output has been seen
};

class Supervisor {
 public:
  Supervisor(const std::vector<SupervisedProcess>& members, const SupervisorOptions& options)
      : options_(options),
        relay_(options.relay != nullptr ? *options.relay : own_relay_.emplace()),
        out_(options.out_fd),
        err_(options.err_fd) {
    EchoQueue* err = same_file(options.out_fd, options.err_fd) ? &out_ : &err_;
    for (const SupervisedProcess& member : members)
      living_.push_back(
          {.output = RankOutput(member.log_file, member.echo ? &out_ : nullptr, member.echo ? err : nullptr),
           .echoes = member.echo});
    end_.deaths.resize(members.size());
  }
  /// Has something left to do only after an exception.
  ~Supervisor() {
    kill_all(SIGKILL);
    for (Living& each : living_)
      if (each.pid > 0) ::waitpid(each.pid, nullptr, 0);
  }
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  SupervisorResult run(const std::vector<SupervisedProcess>& members) {
    for (std::size_t i = 0; i < members.size(); ++i) start(members[i], i);
    while (count_living() > 0 || out_.waiting() || err_.waiting()) {
      wait();
      reap();
      keep_deadlines();
      if (given_up_) break;
    }
    conclude();
    return std::move(end_);
  }

 private:
  // ---- starting and stopping

  void start(const SupervisedProcess& member, std::size_t index) {
    Living& living = living_[index];
    Pipe lifeline = make_pipe();
    ::fcntl(lifeline.write.get(), F_SETFL, O_NONBLOCK);
    const std::string& first = member.first_input;
    const auto written = ::write(lifeline.write.get(), first.data(), first.size());
    require(written == static_cast<ssize_t>(first.size()), "a lifeline takes only ", written, " of ", first.size(),
            " bytes");
    ProcessPlan plan{.path = find_program(member.program, value_of(member.variables, "PATH")),
                     .argv = member.argv,
                     .variables = member.variables,
                     .stdout_fd = living.output.child_stdout(),
                     .stderr_fd = living.output.child_stderr(),
                     .keep = member.keep};
    if (options_.lifeline == Lifeline::standard_input) {
      plan.stdin_fd = lifeline.read.get();
    } else {
      plan.keep.push_back(lifeline.read.get());
      plan.variables["TRIREME_LIFELINE_FD"] = std::to_string(lifeline.read.get());
    }
    sigset_t mask = relay_.original_mask();
    for (const int signal : kUserSignals)
      if (options_.saves_on_stop) ::sigaddset(&mask, signal);  // until StopSignals handles them: they ask for no stop
    living.pid = start_process(plan, mask);
    orphan_reaper_.watch(living.pid);
    living.pidfd = OwnedFd(static_cast<int>(::syscall(SYS_pidfd_open, living.pid, 0)));
    living.lifeline = std::move(lifeline.write);
    living.output.close_write_ends();
    end_.deaths[index].pid = living.pid;
  }

  int count_living() const {
    return static_cast<int>(std::ranges::count_if(living_, [](const Living& each) { return each.pid > 0; }));
  }

  void ask(const Living& living, char request) const {
    // The reader may be gone, or the pipe full of unread requests; SIGKILL follows anyway.
    [[maybe_unused]] const ssize_t written = ::write(living.lifeline.get(), &request, 1);
  }

  void kill_all(int signal) const {
    for (const Living& each : living_)
      if (each.pid > 0) ::kill(-each.pid, signal);
  }

  void begin_stop(Time now) {
    if (stopping_) return;
    stopping_ = true;
    decide_at_.reset();
    end_.stopped = count_living();
    for (const Living& each : living_)
      if (each.pid > 0) ask(each, 'S');
    if (options_.lifeline == Lifeline::descriptor) {
      for (const Living& each : living_)
        if (each.pid > 0) ::sigqueue(each.pid, SIGTERM, {.sival_int = kStopAfterFailure});
      kill_all(SIGTERM);  // also what the ranks have started
    }
    kill_at_ = now + options_.grace;
  }

  // ---- signals

  /// Sent to a rank's whole process group, as from a terminal, so that it also reaches ranks under a wrapper script.
  /// User signals go only to the rank: they would kill its helpers, which do not expect them.
  void pass_on(const Living& living, int signal) const {
    const bool to_one = signal == SIGUSR1 || signal == SIGUSR2;
    if (options_.lifeline == Lifeline::descriptor) ::kill(to_one ? living.pid : -living.pid, signal);
    for (const auto& [number, byte] : kSignalBytes)
      if (options_.lifeline == Lifeline::standard_input && number == signal) ask(living, byte);
  }

  void on_signal(int signal, Time now) {
    if (repeats_kill(signal)) {
      const auto [first, is_new] = first_request_.try_emplace(signal, now);
      if (!is_new && now - first->second < kOneRequest) return;
      if (!is_new && !end_.killed_by_user) {
        end_.killed_by_user = true;
        end_.stop_signal = signal;
        stopping_ = true;
        // A child launcher kills its own ranks, and then reports.
        kill_at_ = options_.lifeline == Lifeline::standard_input ? now + options_.grace : now;
      }
    }
    if (count_living() == 0 && is_stop_signal(signal)) {  // only output that is not being read is left
      out_.drop();
      err_.drop();
    }
    if (is_stop_signal(signal)) {
      end_.stop_was_asked = true;
      if (!first_event_) first_event_ = now;
    }
    if (signal != SIGCONT) passed_on_.push_back(signal);
    for (const Living& each : living_)
      if (each.pid > 0) pass_on(each, signal);
  }

  void on_control(Time now) {
    char bytes[64];
    const ssize_t size = ::read(options_.control_fd, bytes, sizeof bytes);
    if (size < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (size <= 0) control_open_ = false;
    for (ssize_t i = 0; i < size; ++i)
      for (const auto& [number, byte] : kSignalBytes)
        if (byte == bytes[i]) on_signal(number, now);
    if (size > 0 && std::string_view(bytes, static_cast<std::size_t>(size)).find('S') == std::string_view::npos) return;
    if (stopping_ || count_living() == 0) return;
    end_.stopped_from_above = end_.stop_was_asked = true;
    if (!first_event_) first_event_ = now;
    begin_stop(now);
  }

  // ---- the loop

  int timeout(Time now) const {
    std::optional<Time> next;
    const auto consider = [&](const std::optional<Time>& at) {
      if (at && (!next || *at < *next)) next = at;
    };
    for (const auto& at : {decide_at_, kill_at_, give_up_at_, out_.full_until(), err_.full_until()}) consider(at);
    if (count_living() == 0)
      for (const EchoQueue* queue : {&out_, &err_}) consider(queue->unread_until(options_.last_patience));
    for (const Living& each : living_)
      if (each.pid > 0 && !each.pidfd) consider(now + kWithoutPidfd);
    if (!next) return -1;
    return static_cast<int>(std::max<std::int64_t>(0, std::chrono::ceil<milliseconds>(*next - now).count()));
  }

  void wait() {
    std::vector<pollfd> fds{{relay_.fd(), POLLIN, 0}};
    fds.push_back({control_open_ ? options_.control_fd : -1, POLLIN, 0});
    for (const EchoQueue* queue : {&out_, &err_}) fds.push_back({queue->waiting() ? queue->fd() : -1, POLLOUT, 0});
    const std::size_t first_source = fds.size();
    std::vector<std::pair<RankOutput*, RankOutput::Source*>> sources;
    for (Living& each : living_) {
      for (RankOutput::Source& source : each.output.sources()) {
        if (!source.fd || (source.echo != nullptr && source.echo->full_until())) continue;
        fds.push_back({source.fd.get(), POLLIN, 0});
        sources.emplace_back(&each.output, &source);
      }
    }
    for (const Living& each : living_)
      if (each.pid > 0 && each.pidfd) fds.push_back({each.pidfd.get(), POLLIN, 0});

    if (::poll(fds.data(), fds.size(), timeout(Clock::now())) < 0) return;  // EINTR: the relay is readable now
    for (const int signal : fds[0].revents != 0 ? relay_.take() : std::vector<int>{}) on_signal(signal, Clock::now());
    if (fds[1].revents != 0) on_control(Clock::now());
    if (fds[2].revents != 0 && out_.waiting()) out_.write_some();
    if (fds[3].revents != 0 && err_.waiting()) err_.write_some();
    for (std::size_t i = 0; i < sources.size(); ++i)
      if (fds[first_source + i].revents != 0) sources[i].first->read_some(*sources[i].second, warn_once_);
  }

  /// The exit of `living`, which stays a zombie: its process group id stays valid.
  std::optional<ProcessExit> death_of(const Living& living) const {
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(living.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
      if (errno != ECHILD) return std::nullopt;
      return ProcessExit{.pid = living.pid, .code = static_cast<int>(ExitCode::internal)};  // the caller has reaped it
    }
    if (info.si_pid == 0) return std::nullopt;
    if (info.si_code == CLD_EXITED) return ProcessExit{.pid = living.pid, .code = info.si_status};
    return ProcessExit{.pid = living.pid, .signal = info.si_status};
  }

  /// Of simultaneous exits the likely cause goes first: a signal before an exit code, "peer lost" last.
  static int order(const ProcessExit& death) { return death.signal != 0 ? 0 : death.code == kPeerLost ? 2 : 1; }

  void reap() {
    std::vector<std::size_t> dead;
    for (std::size_t i = 0; i < living_.size(); ++i) {
      if (living_[i].pid <= 0) continue;
      const std::optional<ProcessExit> death = death_of(living_[i]);
      if (!death) continue;
      end_.deaths[i] = *death;
      dead.push_back(i);
    }
    std::ranges::stable_sort(dead, {}, [&](std::size_t i) { return order(end_.deaths[i]); });
    const Time now = Clock::now();
    for (const std::size_t i : dead) {
      Living& each = living_[i];
      if (end_.deaths[i].signal != 0 || end_.deaths[i].code != 0 || stopping_) ::kill(-each.pid, SIGKILL);
      orphan_reaper_.forget(each.pid);
      ::waitpid(each.pid, nullptr, 0);
      each.pid = -1;
      each.pidfd.reset();
      each.lifeline.reset();
      each.output.drain_and_close(warn_once_);
      note_exit(i, now);
    }
    if (!dead.empty()) last_death_ = now;
  }

  // ---- interpreting an exit

  /// A requested exit: by a signal that we forwarded, or that the rank received itself. Then all ranks save and exit on
  /// their own, and one that exits early makes others report a lost peer.
  bool orderly(const ProcessExit& death) const {
    const auto passed = [&](int signal) { return std::ranges::find(passed_on_, signal) != passed_on_.end(); };
    if (death.signal != 0) return passed(death.signal);
    const bool saved =
        death.code == static_cast<int>(ExitCode::preempted) || death.code == static_cast<int>(ExitCode::interrupted);
    const bool ending = orderly_deaths_ > 0 || passed(SIGINT) || passed(SIGTERM) || passed(SIGHUP);
    return saved || (death.code > 128 && passed(death.code - 128)) || (death.code == kPeerLost && ending);
  }

  /// The forwarded signal that a rank answers with an exit code: of several the first, as ranks do; SIGUSR1 only if
  /// there was no other (`--requeue`).
  int first_request() const {
    int found = 0;
    for (const int signal : passed_on_) {
      if (is_stop_signal(signal)) return signal;
      if (signal == SIGUSR1) found = signal;
    }
    return found;
  }

  static bool is_only_a_lost_peer(const ProcessExit& death) { return death.signal == 0 && death.code == kPeerLost; }

  /// An error that a process has found itself, and not because it was stopped or has lost its peers.
  static bool is_own_failure(const ProcessExit& death) {
    const auto code = static_cast<ExitCode>(death.code);
    return death.signal == 0 && death.code > 0 && death.code < 128 && code != ExitCode::internal &&
           code != ExitCode::peer_lost && code != ExitCode::hang_or_mismatch && code != ExitCode::preempted;
  }

  /// A rank has lost a peer, and the one that failed may be about to say why.
  bool cause_is_unknown() const {
    return end_.failed >= 0 && is_only_a_lost_peer(end_.deaths[static_cast<std::size_t>(end_.failed)]);
  }

  void note_exit(std::size_t member, Time now) {
    const ProcessExit& death = end_.deaths[member];
    // How fast a machine is must not decide which exit code counts: the cause may come after its consequence, even when
    // the others are being stopped for that.
    if (stopping_ && cause_is_unknown() && is_own_failure(death)) end_.failed = static_cast<int>(member);
    if (stopping_ || (death.signal == 0 && death.code == 0)) return;
    if (!first_event_) first_event_ = now;
    if (orderly(death)) {
      ++orderly_deaths_;
      if (end_.stop_signal == 0) end_.stop_signal = death.signal != 0 ? death.signal : first_request();
      if (orderly_code_ == 0 && death.signal == 0 && death.code != kPeerLost) orderly_code_ = death.code;
      return;
    }
    const bool had_cause = end_.failed >= 0;
    const bool consequence = is_only_a_lost_peer(death);
    if (had_cause && consequence) return;
    end_.failed = static_cast<int>(member);
    if (consequence) {
      decide_at_ = now + options_.other_cause;
    } else {
      begin_stop(now);
    }
  }

  void keep_deadlines() {
    const Time now = Clock::now();
    if (decide_at_ && now >= *decide_at_) begin_stop(now);
    if (kill_at_ && now >= *kill_at_) {
      if (!longest_until_) longest_until_ = *kill_at_ + options_.longest_grace;
      const Time cause_until = *longest_until_ - options_.longest_grace - options_.grace + options_.cause_grace;
      const bool waits = (now < *longest_until_ && one_is_finishing()) || (now < cause_until && cause_is_unknown());
      if (!end_.killed_by_user && waits) {
        kill_at_ = now + milliseconds(50);
      } else {
        kill_at_.reset();
        kill_all(SIGKILL);
        give_up_at_ = now + kGiveUpAfter;
      }
    }
    if (give_up_at_ && now >= *give_up_at_ && count_living() > 0) give_up();
    if (count_living() == 0)
      for (EchoQueue* queue : {&out_, &err_})
        if (const auto at = queue->unread_until(options_.last_patience); at && now >= *at) queue->drop();
  }

  bool one_is_finishing() const {
    for (std::size_t i = 0; options_.is_finishing && i < living_.size(); ++i)
      if (living_[i].pid > 0 && options_.is_finishing(i)) return true;
    return false;
  }

  void give_up() {
    given_up_ = true;
    for (std::size_t i = 0; i < living_.size(); ++i)
      if (living_[i].pid > 0) end_.stuck.push_back(static_cast<int>(i));
    for (Living& each : living_) each.pid = -1;
  }

  /// An error that all ranks have found: one of those whose output is echoed has told it, line by line.
  bool has_been_seen(const std::vector<std::string>& lines) const {
    const auto error = std::ranges::find_if(lines, [](const std::string& line) { return line.starts_with("error: "); });
    if (error == lines.end()) return false;
    return std::ranges::any_of(living_, [&](const Living& each) {
      if (!each.echoes) return false;
      const std::vector<std::string> seen = each.output.last_lines(kLastWords);
      return std::ranges::search(seen, std::span(error, lines.end())).begin() != seen.end();
    });
  }

  void conclude() {
    if (first_event_ && last_death_)
      end_.stop_seconds = std::chrono::duration<double>(*last_death_ - *first_event_).count();
    if (end_.killed_by_user) {
      end_.failed = -1;
      end_.code = kKilledCode;
    } else if (end_.failed >= 0) {
      const ProcessExit& death = end_.deaths[static_cast<std::size_t>(end_.failed)];
      end_.code = death.signal != 0 ? kPeerLost : death.code;
      end_.last_output = living_[static_cast<std::size_t>(end_.failed)].output.last_lines(kLastWords);
      if (has_been_seen(end_.last_output)) end_.last_output.clear();
    } else if (end_.stopped_from_above) {
      end_.code = kPeerLost;
    } else if (orderly_code_ != 0) {
      end_.code = orderly_code_;
    } else if (end_.stop_signal != 0) {
      end_.code = options_.saves_on_stop ? static_cast<int>(stop_code(end_.stop_signal)) : 128 + end_.stop_signal;
    }
  }

  const SupervisorOptions& options_;
  std::optional<SignalRelay> own_relay_{};
  SignalRelay& relay_;
  OrphanReaper orphan_reaper_{};
  EchoQueue out_, err_;
  std::vector<Living> living_{};
  SupervisorResult end_{};

  bool stopping_ = false, given_up_ = false;
  bool control_open_ = true;
  int orderly_deaths_ = 0;
  int orderly_code_ = 0;  // of the first rank that exited with a code after a signal
  std::vector<int> passed_on_{};
  std::map<int, Time> first_request_{};  // by signal
  std::optional<Time> first_event_{}, last_death_{}, longest_until_{};
  std::optional<Time> decide_at_{}, kill_at_{}, give_up_at_{};
  bool warned_ = false;
  RankOutput::Tell warn_once_ = [this](const std::string& what) {
    if (!std::exchange(warned_, true) && options_.warn) options_.warn(what);
  };
};

}  // namespace

SupervisorResult supervise(const std::vector<SupervisedProcess>& members, const SupervisorOptions& options) {
  return Supervisor(members, options).run(members);
}

}  // namespace trireme::launcher
