#include "trireme/report/page.hpp"

#include <chrono>

#include "trireme/base/error.hpp"
#include "trireme/base/svg.hpp"
#include "trireme/base/wall_clock.hpp"
#include "trireme/report/sections.hpp"

namespace trireme::report {
namespace {

std::vector<Section> sections_of(const Runs& runs) {
  return {{"loss", "Loss", loss_html(runs)},
          {"throughput", "Throughput", throughput_html(runs)},
          {"breakdown", "Where a step goes", breakdown_html(runs)},
          {"memory", "Memory", memory_html(runs)},
          {"pipeline", "Pipeline", gantt_html(runs)},
          {"overlap", "Communication", overlap_html(runs) + collectives_html(runs)},
          {"operations", "Operations", operations_html(runs)},
          {"ranks", "Ranks",
           "<h4>Own work per rank and step</h4>" + rank_times_html(runs) + "<h4>Bytes between ranks</h4>" +
               rank_bytes_html(runs)},
          {"layout", "Layout", layout_html(runs) + parameters_html(runs)},
          {"config", "Config", config_html(runs)},
          {"environment", "Environment", environment_html(runs)}};
}

std::string title_of(const Runs& runs) {
  std::string title;
  for (const RunFiles& run : runs) title += text(title.empty() ? "" : ", ", run.name);
  return title;
}

}  // namespace

std::string page_html(const Runs& runs, const PageOptions& options) {
  require(!runs.empty() && runs.size() <= kMostRuns, "a report of ", runs.size(), " runs");
  const std::string title = xml_escaped(title_of(runs));
  const std::vector<Section> sections = sections_of(runs);
  std::string nav, body;
  for (const Section& section : sections) {
    nav += text("<a href=\"#", section.id, "\">", xml_escaped(section.title), "</a>");
    body += text("<section id=\"", section.id, "\"><h2>", xml_escaped(section.title), "</h2>\n", section.html,
                 "</section>\n");
  }
  return text("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n",
              "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
              "<meta name=\"color-scheme\" content=\"light dark\">\n",
              // Nothing may be loaded, whatever a file of the run contains.
              "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
              "script-src 'unsafe-inline'; img-src data:\">\n<link rel=\"icon\" href=\"data:,\">\n",
              options.refresh_seconds > 0
                  ? text("<meta http-equiv=\"refresh\" content=\"", options.refresh_seconds, "\">\n")
                  : "",
              "<title>", title, "</title>\n<style>", style_css(), "</style></head>\n<body><header><h1>", title, "</h1>",
              summary_html(runs), "<nav>", nav, "</nav></header>\n<main>", body, "</main>\n<footer>",
              xml_escaped(options.program), " report, ", utc_text(std::chrono::system_clock::now()),
              ". Data: metrics.jsonl, ranks.jsonl, events.jsonl, config.toml and trace/ of the run; a trace opens in "
              "ui.perfetto.dev, tb/ in TensorBoard.</footer>\n<div id=\"tip\" hidden></div>\n<script>",
              script_js(), "</script></body></html>\n");
}

}  // namespace trireme::report
