#pragma once
// The time of day, handed in wherever it is written down, so that tests can choose it.
#include <chrono>
#include <functional>

namespace trireme {

using WallClock = std::function<std::chrono::system_clock::time_point()>;

inline WallClock system_wall_clock() { return &std::chrono::system_clock::now; }

}  // namespace trireme
