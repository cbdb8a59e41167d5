#pragma once
// Communication options: the [comm] section of the config, for the layers below the config.
#include <string>

namespace trireme {

/// off: only the arguments of each call are checked. fast: the calls of a step are compared at its end, by one hash.
/// strict: every call is compared before its data is sent.
enum class CheckMode { off, fast, strict };

/// Given to a backend where the watchdog alone decides: no call takes a week.
inline constexpr double kNoTimeout = 7 * 24 * 3600;

struct CommOptions {
  CheckMode check = CheckMode::fast;
  bool deterministic = false;        // sums in rank order, on every backend
  double timeout_s = 100;            // per call
  double init_timeout_s = 300;       // for the startup of all ranks
  std::string hang_folder = "hang";  // where ranks write their flight records after a timeout
  int full_mesh_ranks = 64;          // in a larger world the ranks of the step check connect when they first talk
};

}  // namespace trireme
