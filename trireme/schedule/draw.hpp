#pragma once
// A replayed schedule for people: rows are ranks, time goes to the right.
#include <string>

#include "trireme/schedule/replay.hpp"
#include "trireme/schedule/schedule.hpp"

namespace trireme::schedule {

struct DrawOptions {
  int width = 100;     // columns of the terminal
  bool color = false;  // ANSI colours
};

/// A row a rank. A step shows its op and microbatch ("F0"; with several chunks a rank "4F0"), idle time is dots. Cells
/// get as wide as the width allows, down to one column; what still does not fit is left out, and a last line says so.
std::string draw_text(const Schedule& schedule, const Replay& replay, const DrawOptions& options = {});

/// The same as one SVG picture, whole; a step's name and times appear under the mouse.
std::string draw_svg(const Schedule& schedule, const Replay& replay);

/// Two lines: makespan and bubble in units of the costs, and the activations that the ranks hold at most.
std::string summary(const Schedule& schedule, const Replay& replay);

}  // namespace trireme::schedule
