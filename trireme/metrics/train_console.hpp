#pragma once
// Console output of a training run, on a terminal or in a log file. docs/training_output.md shows the modes.
#include <chrono>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/terminal.hpp"
#include "trireme/metrics/run_summary.hpp"
#include "trireme/metrics/step_record.hpp"
#include "trireme/metrics/step_table.hpp"

namespace trireme::metrics {

/// bar: a table, and a progress bar under it on a terminal. plain: key=value. json: the records of metrics.jsonl.
/// quiet: warnings and the summary.
enum class ConsoleMode { bar, plain, json, quiet };

/// The mode for metrics.console; "auto" is bar. ConfigError for any other value.
ConsoleMode console_mode(std::string_view word);

struct ConsoleOptions {
  ConsoleMode mode = ConsoleMode::plain;
  TerminalFacts terminal{};
  std::int64_t interval = 10;                                                      // steps
  std::function<void(const std::string&)> on_warning = [](const std::string&) {};  // also told of each
  std::function<std::chrono::steady_clock::time_point()> clock = &std::chrono::steady_clock::now;
};

/// Only for rank 0, not thread-safe. `out` must outlive it. The bar is erased before anything else is printed, and at
/// the end.
class TrainConsole {
 public:
  /// ConfigError if the interval is not at least 1.
  TrainConsole(std::ostream& out, ConsoleOptions options);
  ~TrainConsole();
  TrainConsole(const TrainConsole&) = delete;
  TrainConsole& operator=(const TrainConsole&) = delete;

  /// Prints label and text lines above the table, before the first step: {"model", "tiny-llama ..."}.
  void header(const std::vector<std::pair<std::string, std::string>>& lines);

  /// After the header: the bar says that the first step of so many runs.
  void begin(std::int64_t steps);

  /// Prints the first step of the run, multiples of the interval, steps with validation, and the last; for the others
  /// draws the bar, at most five times per second.
  void step(const StepRecord& record);

  /// Appended to the next printed row, or on its own line if there is none: "✓ checkpoint 200 (11 MB)". Call it before
  /// step() of that step. As json: immediately, {"note":"..."}.
  void note(std::string text);

  /// Printed immediately on its own line; the bar is redrawn under it.
  void warning(const std::string& text);

  void finish(RunSummary summary);

  /// Call before something else writes to the terminal; the next step redraws it.
  void erase_bar();

 private:
  using Time = std::chrono::steady_clock::time_point;

  bool due(const StepRecord& record) const;
  void print(const std::string& lines);
  void print_row(const StepRecord& record);
  void print_plain(const StepRecord& record);
  void draw_bar();
  void draw(const std::string& bar);

  std::ostream& out_;
  const ConsoleOptions options_;
  const Style style_;
  const Time begun_;
  std::vector<std::string> notes_;
  std::optional<StepTable> table_;  // created at the first step: its width depends on the number of steps
  int lines_since_header_ = 0;
  std::optional<StepRecord> last_;
  std::int64_t first_step_ = 0;
  Time first_step_end_{}, last_step_end_{};
  std::optional<Time> drawn_at_;
  bool bar_is_drawn_ = false;
};

}  // namespace trireme::metrics
