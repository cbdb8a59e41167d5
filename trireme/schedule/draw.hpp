#pragma once
// Draws a replayed schedule as a timeline: rows are ranks, time goes to the right.
#include <string>

#include "trireme/schedule/replay.hpp"
#include "trireme/schedule/schedule.hpp"

namespace trireme::schedule {

struct DrawOptions {
  int width = 100;     // columns of the terminal
  bool color = false;  // ANSI colours
};

/// One row per rank. An action shows its kind and microbatch ("F0"; with several chunks per rank "4F0"), idle time is
/// dots. Cells are as wide as the width allows, at least one column; what still does not fit is omitted, and a last
/// line says so.
std::string draw_text(const Schedule& schedule, const Replay& replay, const DrawOptions& options = {});

/// The whole timeline as one SVG image; a tooltip shows the name and times of an action.
std::string draw_svg(const Schedule& schedule, const Replay& replay);

/// The colour of an action in SVG images.
const char* svg_fill(ActionKind op);

/// Two lines: makespan and bubble in units of the costs, and the peak number of live activations per rank.
std::string summary(const Schedule& schedule, const Replay& replay);

}  // namespace trireme::schedule
