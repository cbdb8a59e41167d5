// The own work of each rank in each step: a slow rank is a dark row, a slow moment a dark column.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/svg.hpp"
#include "trireme/report/run_segments.hpp"
#include "trireme/report/sections.hpp"

namespace trireme::report {
namespace {

constexpr std::size_t kMostColumns = 160, kMostRanks = 64;
constexpr int kLevels = 12;

/// By column, then by rank: means over the steps of a column.
struct HeatMap {
  std::vector<std::vector<double>> cells;
  std::int64_t first_step = 0, last_step = 0;
  std::size_t ranks = 0;
  double low = 0, high = 1;  // of the colours
};

/// Of the steps from `first` to `last`.
std::optional<HeatMap> heat_map_of(const RunFiles& run, std::int64_t first, std::int64_t last) {
  std::vector<const RankRow*> rows;
  for (const RankRow& row : run.ranks)
    if (row.own_work_s.size() > 1 && row.step >= first && row.step <= last) rows.push_back(&row);
  if (rows.empty()) return std::nullopt;
  HeatMap map{.cells = {}, .first_step = rows.front()->step, .last_step = rows.back()->step};
  map.ranks = std::min(kMostRanks, rows.front()->own_work_s.size());
  const std::size_t each = (rows.size() + kMostColumns - 1) / kMostColumns;
  std::vector<double> all;
  for (std::size_t i = 0; i < rows.size(); i += each) {
    std::vector<double> column;
    for (std::size_t rank = 0; rank < map.ranks; ++rank) {
      double sum = 0, count = 0;
      for (std::size_t k = i; k < std::min(i + each, rows.size()); ++k)
        if (rank < rows[k]->own_work_s.size() && std::isfinite(rows[k]->own_work_s[rank]))
          sum += rows[k]->own_work_s[rank], ++count;
      column.push_back(count > 0 ? sum / count : std::numeric_limits<double>::quiet_NaN());
      if (count > 0) all.push_back(column.back());
    }
    map.cells.push_back(std::move(column));
  }
  if (all.empty()) return std::nullopt;
  std::ranges::sort(all);
  // Without the outermost two percent: one slow step would make all others look alike.
  map.low = all[all.size() / 50];
  map.high = std::max(all[all.size() - 1 - all.size() / 50], map.low * (1 + 1e-9));
  return map;
}

/// One path for all cells of a colour.
std::string cells_svg(const HeatMap& map) {
  std::array<std::string, kLevels> paths;
  const double width = 1000.0 / static_cast<double>(map.cells.size()), height = 1000.0 / static_cast<double>(map.ranks);
  for (std::size_t c = 0; c < map.cells.size(); ++c)
    for (std::size_t rank = 0; rank < map.ranks; ++rank) {
      const double value = map.cells[c][rank];
      if (!std::isfinite(value)) continue;
      const double share = std::clamp((value - map.low) / (map.high - map.low), 0.0, 1.0);
      const auto level = static_cast<std::size_t>(std::lround(share * (kLevels - 1)));
      paths[level] +=
          text("M", svg_number(width * static_cast<double>(c)), " ", svg_number(height * static_cast<double>(rank)),
               "h", svg_number(width + 0.3), "v", svg_number(height - 6), "h-", svg_number(width + 0.3), "z");
    }
  std::string out;
  for (std::size_t level = 0; level < paths.size(); ++level)
    if (!paths[level].empty())
      out +=
          text("<path class=\"heat\" style=\"fill-opacity:",
               svg_number(0.06 + 0.94 * static_cast<double>(level) / (kLevels - 1)), "\" d=\"", paths[level], "\"/>");
  return out;
}

std::string heat_map_html(const HeatMap& map, const std::string& caption_html) {
  std::string labels;
  for (std::size_t rank = 0; rank < map.ranks; ++rank)
    labels += text("<span class=\"tick y\" style=\"top:",
                   svg_number(100 * (static_cast<double>(rank) + 0.45) / static_cast<double>(map.ranks)), "%\">rank ",
                   rank, "</span>");
  labels += text("<span class=\"tick x\" style=\"left:0%\">", map.first_step,
                 "</span><span class=\"tick x\" style=\"left:100%\">", map.last_step, "</span>");
  const auto height = std::clamp<std::size_t>(map.ranks * 22, 60, 640);
  return captioned_html(
      text("<div class=\"chart\"><div class=\"area plain\" style=\"height:", height,
           "px\"><svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\">", cells_svg(map), "</svg>", labels,
           "</div><div class=\"xtitle\">step</div></div>"),
      text("Own work of each rank per step: the time in which it did not wait for others, from ",
           human_seconds(map.low), " (light) to ", human_seconds(map.high), " (dark).", caption_html));
}

std::string slowest_html(const RunFiles& run, std::size_t index) {
  const RunFacts facts = facts_of(run);
  if (!facts.slowest_rank) return "";
  return text(run.segments.size() > 1 ? " Over the last layout, rank " : " Over the run, rank ",
              figure_html(figure_name(index, "slowest_rank"), *facts.slowest_rank, text(*facts.slowest_rank)),
              " worked longest: ",
              figure_html(figure_name(index, "slowest_excess"), *facts.slowest_excess,
                          "+" + percent_text(*facts.slowest_excess)),
              " over the median rank.");
}

/// The earlier layouts of the run, the last of them first.
std::string earlier_maps(const RunFiles& run) {
  constexpr std::size_t kMostMaps = 8;
  std::string out;
  for (std::size_t i = run.segments.size() - 1, maps = 0; i-- > 0 && maps < kMostMaps;) {
    const Segment& segment = run.segments[i];
    const std::optional<HeatMap> map = heat_map_of(run, segment.first, segment.last);
    if (!map) continue;
    ++maps;
    out += text("<details><summary>Earlier layout: ", steps_text(segment), ", ", xml_escaped(segment.layout),
                "</summary>", heat_map_html(*map, ""), "</details>");
  }
  return out;
}

}  // namespace

std::string rank_times_html(const Runs& runs) {
  std::string out;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    out += run_heading(runs, runs[i]);
    const std::int64_t first = runs[i].segments.empty() ? 0 : runs[i].segments.back().first;
    if (const std::optional<HeatMap> map = heat_map_of(runs[i], first, std::numeric_limits<std::int64_t>::max()))
      out += heat_map_html(
          *map, " All ranks end a step together, so step times themselves are equal." + slowest_html(runs[i], i));
    else
      out += missing_html("No times of ranks.",
                          runs[i].world_size() == 1
                              ? "The run has one rank."
                              : "ranks.jsonl has none: it is written by rank 0 at the end of each step, with times "
                                "only on CPUs, where the host's clock shows them.");
    if (runs[i].segments.size() > 1) out += earlier_maps(runs[i]);
  }
  return out;
}

}  // namespace trireme::report
