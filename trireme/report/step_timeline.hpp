#pragma once
// The traced steps of a run as one SVG file: what each rank computed, communicated and waited for.
#include <string>

#include "trireme/report/run_files.hpp"

namespace trireme::report {

/// All traced steps from left to right. Time between steps that do not follow each other is left out. ConfigError if no
/// step was traced.
std::string step_timeline_svg(const RunFiles& run);

}  // namespace trireme::report
