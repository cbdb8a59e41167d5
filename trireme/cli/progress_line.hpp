#pragma once
// One line that says how far work is, on a terminal alone.
#include <chrono>
#include <ostream>
#include <string>
#include <utility>

#include "trireme/data/tokens/progress.hpp"

namespace trireme::cli {

class ProgressLine {
 public:
  /// Shows nothing unless `shown`. `what` begins the line.
  ProgressLine(std::ostream& out, bool shown, int width, std::string what)
      : out_(out), shown_(shown), width_(width), what_(std::move(what)) {}
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// Draws the line anew, five times a second at most.
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
