#pragma once
// Which layout trained which steps. A run may be continued on another one, and its files are those of all its starts.
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/report/run_files.hpp"

namespace trireme::report {

/// In the order of the steps, without gaps; at least one. Starts on one layout that follow each other are one segment.
/// Steps that were trained again count for the start that trained them last.
std::vector<Segment> segments_of(const std::vector<Event>& events, const Columns& metrics);

/// When the layout of this step's segment was started, in seconds since 1970: what was traced before is of another one,
/// whose steps were trained again. 0: not known.
double began_on_its_layout(const std::vector<Event>& events, std::int64_t step);

/// "steps 1–20"; "from step 21" if none of them has been recorded yet.
std::string steps_text(const Segment& segment);
/// "steps 1–20: dp 4; steps 21–40: dp 2 tp 2". Of more than `most`, only the last ones.
std::string segments_text(const RunFiles& run, std::size_t most = 6);

/// Of which the rates and shares of the run are: the rows of the last segment, without the first step of each start,
/// which includes set-up, if there are others.
std::vector<std::size_t> measured_rows(const RunFiles& run);

}  // namespace trireme::report
