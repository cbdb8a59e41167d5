#pragma once
// Starts a job again after failures that may not come again, and not for ever (docs/launching.md, "Restarts").
#include <chrono>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>

#include "trireme/runtime/launcher/launch.hpp"

namespace trireme::launcher {

/// So many restarts in a row without a new checkpoint: the job fails for a reason that every attempt meets.
inline constexpr int kFruitlessRestarts = 3;

/// How one attempt ended.
struct AttemptEnd : LaunchEnd {
  std::optional<std::uint64_t> checkpoints{};  // committed during the attempt; nullopt: nobody knows
};

/// Decides after each attempt of a job.
class RestartRule {
 public:
  explicit RestartRule(int most) : most_(most) {}

  struct Decision {
    bool again = false;
    int wait = 0;       // before the next attempt, in RestartOptions::unit
    std::string why{};  // it is not started again; empty: there is nothing to tell
  };
  Decision after(const AttemptEnd& end);
  int restarts() const { return restarts_; }

 private:
  int most_;
  int restarts_ = 0;
  int fruitless_ = 0;  // restarts since the last checkpoint
};

struct RestartOptions {
  int most = 0;                                    // --max-restarts
  bool saves_on_stop = false;                      // see LaunchOptions
  std::function<std::string(int attempt)> logs{};  // where an attempt writes its output, for the message
  std::chrono::milliseconds unit{1000};            // of the waits: 1, 2, 4
};

/// Runs attempts 0, 1, ... of a job until one succeeds, or starting it again makes no sense; returns the exit code of
/// the last one, or that of a stop which was asked for between two attempts. `run` is given a relay of signals that
/// holds what arrives between attempts; it is made by the first attempt, since until then there is nothing to stop.
int run_with_restarts(const RestartOptions& options, std::ostream& err,
                      const std::function<AttemptEnd(int attempt, std::optional<SignalRelay>& relay)>& run);

/// The folder of an attempt beside that of the first one: "ranks", "ranks-2", "ranks-3".
std::string attempt_folder(const std::string& first, int attempt);

}  // namespace trireme::launcher
