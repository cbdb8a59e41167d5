#pragma once
// The wall clock as an injected dependency, so that tests can set the time, and its text.
#include <chrono>
#include <ctime>
#include <functional>
#include <string>

namespace trireme {

using WallClock = std::function<std::chrono::system_clock::time_point()>;

inline WallClock system_wall_clock() { return &std::chrono::system_clock::now; }

/// "2026-11-16T14:00:00Z"
inline std::string utc_text(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  char words[32];
  return {words, std::strftime(words, sizeof words, "%Y-%m-%dT%H:%M:%SZ", &utc)};
}

}  // namespace trireme
