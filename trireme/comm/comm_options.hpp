#pragma once
// How ranks talk: what [comm] of the config says, for those below the config.
#include <string>

namespace trireme {

/// off: only the arguments of each call are checked. fast: the calls of a step are compared at its end, by one hash.
/// strict: every call is compared before its data moves.
enum class CheckMode { off, fast, strict };

struct CommOptions {
  CheckMode check = CheckMode::fast;
  bool deterministic = false;        // sums in rank order, on every backend
  double timeout_s = 100;            // of a call
  double init_timeout_s = 300;       // until all ranks have come
  std::string hang_folder = "hang";  // where a rank leaves its last calls when one timed out
};

}  // namespace trireme
