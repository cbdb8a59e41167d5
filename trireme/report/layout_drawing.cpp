// The grid of ranks, once for each axis with several ranks: ranks of one colour are a group along it.
#include <algorithm>
#include <cmath>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/svg.hpp"
#include "trireme/report/run_segments.hpp"
#include "trireme/report/sections.hpp"

namespace trireme::report {
namespace {

constexpr int kMostDrawnRanks = 128;
constexpr int kGroupColours = 8;

const char* meaning_of(Axis axis) {
  switch (axis) {
    case Axis::tp: return "tensor parallel: parts of each matrix";
    case Axis::pp: return "pipeline: consecutive layers";
    case Axis::dp: return "data parallel: different samples";
    case Axis::cp: return "context parallel: parts of each sequence";
    default: return "";
  }
}

/// A cell per rank; rows: pipeline stages.
std::string grid_html(const Grid& grid, Axis axis, int ranks_of_host) {
  const std::vector<std::vector<int>> groups = grid.groups({axis});
  std::vector<std::size_t> group_of(static_cast<std::size_t>(grid.size()));
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (const int rank : groups[g]) group_of[static_cast<std::size_t>(rank)] = g;
  std::string cells;
  for (int pp = 0; pp < grid.degree(Axis::pp); ++pp) {
    cells += text("<div class=\"ranks\"><span class=\"rowlabel\">", grid.degree(Axis::pp) > 1 ? text("pp ", pp) : "",
                  "</span>");
    for (int rank = 0; rank < grid.size(); ++rank) {
      if (grid.coord(rank, Axis::pp) != pp) continue;
      std::string place;
      for (const auto& [each, degree] : grid.axes())
        if (degree > 1) place += text(place.empty() ? "" : " ", name(each), grid.coord(rank, each));
      const std::size_t group = group_of[static_cast<std::size_t>(rank)];
      cells += text("<span class=\"rank g", group % kGroupColours, "\" title=\"", place,
                    ranks_of_host > 0 ? text(", host ", rank / ranks_of_host) : "", ", group ", group, "\"><b>", rank,
                    "</b><small>", place, "</small></span>");
    }
    cells += "</div>";
  }
  return text("<div class=\"grid\"><h4>", name(axis), " = ", grid.degree(axis), " <small>", meaning_of(axis),
              "</small></h4>", cells, "</div>");
}

std::string groups_text(const Grid& grid, Axis axis) {
  std::string out;
  for (const std::vector<int>& group : grid.groups({axis})) {
    std::string ranks;
    for (const int rank : group) ranks += text(ranks.empty() ? "" : ",", rank);
    out += text(out.empty() ? "" : " ", "{", ranks, "}");
  }
  return out;
}

std::string drawing_of(const RunFiles& run, const Grid& grid) {
  const ParallelismConfig& p = run.config->config.parallelism;
  const Event* start = run.last("start");
  const int ranks_of_host =
      start != nullptr
          ? static_cast<int>(std::clamp<std::int64_t>(start->whole("ranks_per_host").value_or(0), 0, Grid::kMaxRanks))
          : 0;
  std::string out = text("<p><code>", xml_escaped(grid.str()), " zero=", p.zero, p.ep > 1 ? text(" ep=", p.ep) : "",
                         "</code> &middot; ", grid.size(), grid.size() == 1 ? " rank" : " ranks",
                         ranks_of_host > 0 ? text(" on ", (grid.size() + ranks_of_host - 1) / ranks_of_host,
                                                  grid.size() <= ranks_of_host ? " host" : " hosts")
                                           : "",
                         "</p>");
  if (grid.size() > kMostDrawnRanks) return out + "<p>Too many ranks to draw.</p>";
  out += "<div class=\"grids\">";
  HtmlTable table{.header = {"axis", "ranks", "groups"}, .rows = {}, .right = {false, true, false}};
  for (const auto& [axis, degree] : grid.axes()) {
    if (degree < 2) continue;
    out += grid_html(grid, axis, ranks_of_host);
    table.rows.push_back({name(axis), text(degree), text("<code>", groups_text(grid, axis), "</code>")});
  }
  out += "</div>";
  return table.rows.empty() ? out : captioned_html(out + table_html(table), "Ranks of one colour are one group.");
}

/// Of a run that was continued on other layouts, what each of them did.
std::string segments_table(const RunFiles& run) {
  HtmlTable table{.header = {"steps", "layout", "ranks", "median tokens/s", "median step", "peak of a rank"},
                  .rows = {},
                  .right = {false, false, true, true, true, true}};
  const Columns& m = run.metrics;
  for (const Segment& segment : run.segments) {
    const auto of = [&](std::string_view key) {
      std::vector<double> values;
      for (std::size_t i = 0; i < m[key].size(); ++i)
        if (segment.has(m.steps[i]) && (!segment.is_start(m.steps[i]) || segment.first == segment.last))
          values.push_back(m[key][i]);
      return values;
    };
    const std::optional<double> rate = median_of(of("tokens_per_sec")), seconds = median_of(of("train_time_s"));
    double peak = 0;
    for (const double gib : of("mem_peak_gib"))
      if (std::isfinite(gib)) peak = std::max(peak, gib);
    table.rows.push_back({steps_text(segment), text("<code>", xml_escaped(segment.layout), "</code>"),
                          segment.ranks > 0 ? text(segment.ranks) : "&ndash;", rate ? human_count(*rate) : "&ndash;",
                          seconds ? human_seconds(*seconds) : "&ndash;",
                          peak > 0 ? human_bytes(peak * 0x1p30) : "&ndash;"});
  }
  return captioned_html(table_html(table),
                        "The medians are without the first step of each start. Below: the last layout.");
}

}  // namespace

std::string layout_html(const Runs& runs) {
  std::string out;
  for (const RunFiles& run : runs) {
    out += run_heading(runs, run);
    if (run.segments.size() > 1) out += segments_table(run);
    if (const std::optional<Grid> grid = run.grid())
      out += drawing_of(run, *grid);
    else
      out += missing_html("The layout is not known.",
                          "config.toml, or the number of ranks in events.jsonl, is missing or does not fit.");
  }
  return out;
}

}  // namespace trireme::report
