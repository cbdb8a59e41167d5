#pragma once
// Log lines, one per event: `[r5 pp1 dp0 tp1] info: checkpoint saved step=400 bytes=11534336`.
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <mutex>
#include <string>
#include <string_view>

#include "trireme/base/field.hpp"
#include "trireme/base/wall_clock.hpp"

namespace trireme {

enum class LogLevel { debug, info, warning, error };

/// Called once per line, newline included.
using LogSink = std::function<void(std::string_view line)>;

/// Each line in one write(2): lines of several ranks on one pipe or terminal are never interleaved (on a pipe: up to
/// 4096 bytes, as POSIX guarantees). A line that cannot be written is dropped, and training continues.
LogSink fd_sink(int fd);

LogSink stream_sink(std::ostream& out);

/// `text` as one word of a key=value line: quoted and escaped if it is empty or contains spaces, quotes, = or control
/// characters; otherwise unchanged.
std::string log_word(std::string_view text);

struct LogOptions {
  std::string prefix{};             // the rank: "r5 pp1 dp0 tp1", shown in brackets; empty: none
  LogLevel level = LogLevel::info;  // lines below this level are dropped
  WallClock clock{};                // each line starts with the time (UTC); empty: no time
};

/// Passed to every component that logs; there is no global log. Thread-safe.
class Log {
 public:
  using Fields = std::initializer_list<LogField>;

  explicit Log(LogSink sink, LogOptions options = {});

  void debug(std::string_view event, Fields fields = {}) { write(LogLevel::debug, event, fields); }
  void info(std::string_view event, Fields fields = {}) { write(LogLevel::info, event, fields); }
  void warning(std::string_view event, Fields fields = {}) { write(LogLevel::warning, event, fields); }
  void error(std::string_view event, Fields fields = {}) { write(LogLevel::error, event, fields); }

  bool enabled(LogLevel level) const { return level >= options_.level; }

 private:
  void write(LogLevel level, std::string_view event, Fields fields) {
    if (enabled(level)) write_line(level, event, fields);
  }
  void write_line(LogLevel level, std::string_view event, Fields fields);

  const LogSink sink_;
  const LogOptions options_;
  std::mutex one_line_at_a_time_;
};

}  // namespace trireme
