#pragma once
// One line on a terminal that says what a start is doing, until there is something else to show.
#include <ostream>
#include <string>
#include <utility>

namespace trireme::metrics {

class StatusLine {
 public:
  /// Shows nothing unless `shown`. `out` must outlive it.
  StatusLine(std::ostream& out, bool shown, int width) : out_(out), shown_(shown), width_(width) {}
  ~StatusLine() { erase(); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  /// Replaces the line; omitted if the terminal is too narrow for it.
  void show(const std::string& text);
  void erase();

 private:
  std::ostream& out_;
  bool shown_, drawn_ = false;
  int width_;
};

}  // namespace trireme::metrics
