#include "trireme/runtime/launcher/restarts.hpp"

#include <algorithm>
#include <array>
#include <iomanip>
#include <ostream>

#include <poll.h>

#include "trireme/base/error.hpp"
#include "trireme/base/stop_signals.hpp"

namespace trireme::launcher {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// Failures of a machine, a network or a moment. What a setting, a file or a number caused comes again.
bool may_not_come_again(int code) {
  constexpr std::array kPassing = {ExitCode::internal, ExitCode::peer_lost, ExitCode::hang_or_mismatch};
  return std::ranges::any_of(kPassing, [&](ExitCode each) { return static_cast<int>(each) == code; });
}

std::string seconds_words(Clock::duration time) {
  return text(std::fixed, std::setprecision(1), std::chrono::duration<double>(time).count(), " s");
}

/// Waits until then; the signal that asked for a stop meanwhile, or 0.
int stop_asked_until(Clock::time_point then, SignalRelay& relay) {
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(then - Clock::now()).count();
    pollfd signals{relay.fd(), POLLIN, 0};
    ::poll(&signals, 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
    // A request to save has nobody to go to: what could be saved was.
    for (const int signal : relay.take())
      if (is_stop_signal(signal)) return signal;
    if (Clock::now() >= then) return 0;
  }
}

}  // namespace

RestartRule::Decision RestartRule::after(const AttemptEnd& end) {
  if (most_ == 0 || end.code == 0 || end.failure.empty() || end.stop_was_asked) return {};
  if (!may_not_come_again(end.code))
    return {.why = text("not restarted: exit code ", end.code,
                        " is not one of 70, 71 and 72, after which another attempt may succeed")};
  // Where nobody knows of checkpoints, only `most_` ends it.
  const bool progress = end.checkpoints.value_or(1) > 0;
  if (progress) fruitless_ = 0;
  if (fruitless_ == kFruitlessRestarts)
    return {.why = text("not restarted: ", kFruitlessRestarts,
                        " restarts without a new checkpoint: the same failure would recur")};
  if (restarts_ == most_) return {.why = text("not restarted: --max-restarts ", most_, " is used up")};
  ++restarts_;
  return {.again = true, .wait = 1 << fruitless_++};
}

int run_with_restarts(const RestartOptions& options, std::ostream& err,
                      const std::function<AttemptEnd(int attempt, std::optional<SignalRelay>& relay)>& run) {
  require<ConfigError>(options.most >= 0, "--max-restarts ", options.most, ": must be at least 0");
  std::optional<SignalRelay> relay;
  RestartRule rule(options.most);
  for (int attempt = 0;; ++attempt) {
    const auto start = Clock::now();
    const AttemptEnd end = run(attempt, relay);
    const RestartRule::Decision next = rule.after(end);
    if (!next.why.empty()) err << next.why << "\n" << std::flush;
    if (!next.again) return end.code;
    const milliseconds wait = next.wait * options.unit;
    const std::string logs = options.logs ? options.logs(attempt + 1) : "";
    err << text("restart ", rule.restarts(), " of at most ", options.most, " in ", seconds_words(wait), ": attempt ",
                attempt, " ended after ", seconds_words(Clock::now() - start), ", ", end.failure, "\n",
                logs.empty() ? "" : text("  logs of attempt ", attempt + 1, ": ", logs, "\n"))
        << std::flush;
    require(relay.has_value(), "an attempt that ran has taken over the signals");
    if (const int signal = stop_asked_until(Clock::now() + wait, *relay); signal != 0) {
      err << text("stopped by ", signal_name(signal), " between two attempts\n") << std::flush;
      return options.saves_on_stop ? static_cast<int>(stop_code(signal)) : 128 + signal;
    }
  }
}

std::string attempt_folder(const std::string& first, int attempt) {
  if (attempt == 0 || first.empty()) return first;
  const std::string plain = first.ends_with('/') && first.size() > 1 ? first.substr(0, first.size() - 1) : first;
  return text(plain, "-", attempt + 1);
}

}  // namespace trireme::launcher
