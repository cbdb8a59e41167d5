#pragma once
// A one-line progress display, only on a terminal.
#include <chrono>
#include <ostream>
#include <string>
#include <utility>

#include "trireme/data/tokens/progress.hpp"

namespace trireme::cli {

class ProgressLine {
 public:
  /// Shows nothing unless `shown`. `what` is the beginning of the line.
  ProgressLine(std::ostream& out, bool shown, int width, std::string what)
      : out_(out), shown_(shown), width_(width), what_(std::move(what)) {}
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// Redraws the line, at most five times per second.
  void show(const data::DataProgress& progress);
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  std::ostream& out_;
  bool shown_, drawn_ = false;
  int width_;
  std::string what_;
  Clock::time_point begun_ = Clock::now(), last_ = begun_;
};

}  // namespace trireme::cli
