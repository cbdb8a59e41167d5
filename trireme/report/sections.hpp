#pragma once
// The sections of the page. Each is in a file that is named for what it draws, takes the runs in the order of the
// command line, and says what is missing instead of a drawing that has no data.
#include <string>
#include <vector>

#include "trireme/report/html.hpp"
#include "trireme/report/plot.hpp"
#include "trireme/report/run_facts.hpp"
#include "trireme/report/run_files.hpp"

namespace trireme::report {

using Runs = std::vector<RunFiles>;

std::string summary_html(const Runs& runs);      // summary.cpp
std::string loss_html(const Runs& runs);         // loss_plot.cpp
std::string throughput_html(const Runs& runs);   // throughput_plot.cpp
std::string breakdown_html(const Runs& runs);    // breakdown_plot.cpp
std::string memory_html(const Runs& runs);       // memory_plot.cpp
std::string gantt_html(const Runs& runs);        // gantt.cpp
std::string overlap_html(const Runs& runs);      // overlap.cpp
std::string collectives_html(const Runs& runs);  // collectives_table.cpp
std::string operations_html(const Runs& runs);   // operations_table.cpp
std::string rank_times_html(const Runs& runs);   // rank_heat_map.cpp
std::string rank_bytes_html(const Runs& runs);   // rank_bytes.cpp
std::string layout_html(const Runs& runs);       // layout_drawing.cpp
std::string parameters_html(const Runs& runs);   // parameter_table.cpp
std::string config_html(const Runs& runs);       // config_table.cpp
std::string environment_html(const Runs& runs);  // environment_table.cpp

/// A heading with the name of the run, if there are several.
std::string run_heading(const Runs& runs, const RunFiles& run);

/// "trace/ has no traced step. Set profiler.steps ..."
std::string no_trace_html(const RunFiles& run, std::string_view what);

/// The traced step that is drawn: the last one, which is not the first of the run if there are several. Of an earlier
/// layout only if the last one has none.
const TracedStep* drawn_step(const RunFiles& run);

/// Of a drawn step of an earlier layout: which one. Else empty.
std::string earlier_layout_html(const RunFiles& run, std::int64_t step);

/// Where the run went on on another layout, as lines of a plot over the steps.
void add_layout_marks(Plot& plot, const RunFiles& run, bool several);

}  // namespace trireme::report
