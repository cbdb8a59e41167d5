// Where and how a run was started, what it warned of, how it ended, and how to start it again.
#include <array>
#include <chrono>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/svg.hpp"
#include "trireme/base/wall_clock.hpp"
#include "trireme/report/sections.hpp"

namespace trireme::report {
namespace {

struct EnvironmentRow {
  const char* key;
  const char* name;
};
constexpr std::array kEnvironmentRows = {EnvironmentRow{"program", "program"},
                                         EnvironmentRow{"libtorch", "libtorch"},
                                         EnvironmentRow{"blas", "BLAS"},
                                         EnvironmentRow{"threads", "threads per rank"},
                                         EnvironmentRow{"host", "host of rank 0"},
                                         EnvironmentRow{"system", "system"},
                                         EnvironmentRow{"device", "device"},
                                         EnvironmentRow{"compute_dtype", "compute dtype"},
                                         EnvironmentRow{"backend", "backend"},
                                         EnvironmentRow{"launcher", "launcher"},
                                         EnvironmentRow{"ranks", "ranks"},
                                         EnvironmentRow{"ranks_per_host", "ranks per host"},
                                         EnvironmentRow{"layout", "layout"},
                                         EnvironmentRow{"step", "first step of the last start"},
                                         EnvironmentRow{"pid", "process id of rank 0"},
                                         EnvironmentRow{"attempt", "restarts before"}};

std::string time_text(double seconds) {
  if (!(seconds > 0) || seconds > 1e11) return "";
  return utc_text(std::chrono::system_clock::time_point(std::chrono::seconds(static_cast<std::int64_t>(seconds))));
}

std::string event_words(const Event& event) {
  if (event.name == "start")
    return text("started (launcher: ", event.word("launcher"), "), step ", event.word("step"), ", ",
                event.word("layout"));
  if (event.name == "checkpoint")
    return text("checkpoint after step ", event.word("step"), ", ", human_bytes(event.number("bytes").value_or(0)),
                ", training waited ", human_seconds(event.number("blocked_s").value_or(0)));
  if (event.name == "saved") return text("saved ", event.word("folder"));
  if (event.name == "warning") return text("warning: ", event.word("text"));
  if (event.name == "error")
    return text("error of rank ", event.word("rank"), " (exit code ", event.word("code"), "): ", event.word("error"));
  if (event.name == "exit") return text("rank 0 ended with exit code ", event.word("code"));
  if (event.name == "job end") return text("the launcher ended with exit code ", event.word("code"));
  return event.name;
}

/// The first, the last, and whatever is not a checkpoint in between.
std::string events_table(const RunFiles& run) {
  HtmlTable table{.header = {"time (UTC)", "event"}, .rows = {}, .right = {}, .css = "words"};
  constexpr std::size_t kMost = 200;
  std::size_t left_out = 0;
  for (const Event& event : run.events) {
    if (table.rows.size() >= kMost && &event != &run.events.back()) {
      ++left_out;
      continue;
    }
    const bool bad = event.name == "warning" || event.name == "error" || event.name == "job end";
    table.rows.push_back(
        {text("<code>", time_text(event.time), "</code>"),
         text(bad ? "<span class=\"warn\">" : "", xml_escaped(event_words(event)), bad ? "</span>" : "")});
  }
  return table_html(table) + (left_out > 0 ? text("<p class=\"note\">", left_out, " more in events.jsonl</p>") : "");
}

}  // namespace

std::string environment_html(const Runs& runs) {
  HtmlTable table{.header = {""}, .rows = {}, .right = {}, .css = "words"};
  for (const RunFiles& run : runs) table.header.push_back(xml_escaped(run.name));
  std::vector<std::string> state = {"end"};
  for (const RunFiles& run : runs) state.push_back(xml_escaped(state_of(run).words));
  table.rows.push_back(std::move(state));
  for (const EnvironmentRow& each : kEnvironmentRows) {
    std::vector<std::string> row = {each.name};
    for (const RunFiles& run : runs) {
      const Event* start = run.last("start");
      row.push_back(start != nullptr ? xml_escaped(start->word(each.key)) : "&ndash;");
    }
    table.rows.push_back(std::move(row));
  }
  std::string out = table_html(table);
  for (const RunFiles& run : runs) {
    out += run_heading(runs, run);
    const Event* start = run.last("start");
    if (start == nullptr) {
      out += missing_html("The environment is not known.", "events.jsonl is missing: it is written by rank 0.");
      continue;
    }
    out += text("<h4>To run it again</h4><pre class=\"command\">", xml_escaped(start->word("command")), "</pre>");
    if (!run.problems.empty()) {
      out += "<h4>Files</h4><ul>";
      for (const std::string& problem : run.problems) out += text("<li class=\"warn\">", xml_escaped(problem), "</li>");
      out += "</ul>";
    }
    out += text("<h4>Events</h4>", events_table(run));
  }
  return out;
}

}  // namespace trireme::report
