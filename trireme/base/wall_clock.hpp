#pragma once
// The wall clock as an injected dependency, so that tests can set the time.
#include <chrono>
#include <functional>

namespace trireme {

using WallClock = std::function<std::chrono::system_clock::time_point()>;

inline WallClock system_wall_clock() { return &std::chrono::system_clock::now; }

}  // namespace trireme
