// The top of the page: how the runs went, in a few numbers; and what the other sections share.
#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/svg.hpp"
#include "trireme/metrics/step_table.hpp"
#include "trireme/report/run_segments.hpp"
#include "trireme/report/sections.hpp"

namespace trireme::report {
namespace {

struct SummaryNumber {
  std::string label, html, remark;
};

std::vector<SummaryNumber> numbers_of(const RunFiles& run, std::size_t index) {
  const RunFacts facts = facts_of(run);
  std::vector<SummaryNumber> out;
  const auto add = [&](const char* label, const char* key, const std::optional<double>& value, const auto& shown,
                       const std::string& remark = "") {
    if (value) out.push_back({label, figure_html(figure_name(index, key), *value, shown(*value)), remark});
  };
  const auto short_text = [](double v) { return metrics::short_number(v, 4, 8); };
  const auto percent = [](double v) { return percent_text(v); };
  if (facts.last_step)
    out.push_back(
        {"steps",
         figure_html(figure_name(index, "steps"), static_cast<double>(*facts.last_step), thousands(*facts.last_step)),
         facts.planned_steps ? text("of ", thousands(*facts.planned_steps)) : ""});
  add("loss", "loss.last", facts.last_loss, short_text,
      facts.first_loss ? text("from ", short_text(*facts.first_loss)) : "");
  add("best val. loss", "validation.best", facts.best_validation, short_text);
  add(
      "tokens/s", "tokens_per_sec.median", facts.median_tokens_per_sec, [](double v) { return human_count(v); },
      run.segments.size() > 1 ? "median, last layout" : "median, all ranks");
  if (facts.predicted_step_s)
    add(
        "step time", "step_s.median", facts.median_step_s, [](double v) { return human_seconds(v); },
        text("median; predicted ", human_seconds(*facts.predicted_step_s)));
  add("MFU", "mfu.median", facts.mfu, percent, "median");
  if (facts.hfu && facts.mfu && *facts.hfu > *facts.mfu) add("HFU", "hfu.median", facts.hfu, percent, "median");
  add(
      "peak memory", "peak", facts.peak_gib ? std::optional(*facts.peak_gib * 0x1p30) : std::nullopt,
      [](double v) { return human_bytes(v); },
      facts.predicted_bytes ? text("predicted ", human_bytes(*facts.predicted_bytes)) : "");
  add("bubble", "bubble.median", facts.bubble, percent,
      facts.ideal_bubble ? text("ideal ", percent_text(*facts.ideal_bubble)) : "");
  for (const auto& [part, share] : facts.shares)
    if (std::string_view(part->key) == "comm_exposed_frac")
      add("exposed comm.", "exposed", share, percent, "of the step time");
  if (facts.slowest_rank)
    out.push_back(
        {"slowest rank", text(*facts.slowest_rank), text("+", percent_text(*facts.slowest_excess), " vs. median")});
  return out;
}

const char* state_class(RunState::Kind kind) {
  switch (kind) {
    case RunState::Kind::finished: return "good";
    case RunState::Kind::running: return "busy";
    case RunState::Kind::failed: return "bad";
    default: return "other";
  }
}

/// A column per run.
std::string side_by_side(const Runs& runs) {
  HtmlTable table{.header = {""}, .rows = {}, .right = {false}};
  std::vector<std::string> labels;
  std::vector<std::vector<SummaryNumber>> numbers;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    table.header.push_back(
        text("<i class=\"chip\" style=\"--c:var(--c-", run_colour(i), ")\"></i>", xml_escaped(runs[i].name)));
    table.right.push_back(true);
    numbers.push_back(numbers_of(runs[i], i));
    for (const SummaryNumber& number : numbers.back())
      if (std::ranges::find(labels, number.label) == labels.end()) labels.push_back(number.label);
  }
  for (const std::string& label : labels) {
    std::vector<std::string> row = {xml_escaped(label)};
    for (const std::vector<SummaryNumber>& of_run : numbers) {
      const auto found = std::ranges::find(of_run, label, &SummaryNumber::label);
      row.push_back(found == of_run.end() ? "&ndash;"
                                          : text(found->html, " <small>", xml_escaped(found->remark), "</small>"));
    }
    table.rows.push_back(std::move(row));
  }
  return table_html(table);
}

}  // namespace

std::string summary_html(const Runs& runs) {
  std::string out;
  for (const RunFiles& run : runs) {
    const RunState state = state_of(run);
    const Event* start = run.last("start");
    out += text(
        "<p class=\"state\"><span class=\"badge ", state_class(state.kind), "\">", xml_escaped(state.words), "</span> ",
        runs.size() > 1 ? text("<b>", xml_escaped(run.name), "</b> &middot; ") : "",
        start != nullptr
            ? text("<code>", xml_escaped(start->word("layout")), "</code> &middot; ", xml_escaped(start->word("ranks")),
                   start->word("ranks") == "1" ? " rank" : " ranks", " &middot; ", xml_escaped(start->word("program")))
            : "",
        "</p>");
    if (run.segments.size() > 1)
      out += text("<p class=\"state\">Continued on another layout: <code>", xml_escaped(segments_text(run)),
                  "</code>. Rates, shares, memory and ranks are of the last one.</p>");
  }
  if (runs.size() > 1) return out + side_by_side(runs);
  out += "<div class=\"tiles\">";
  for (const SummaryNumber& number : numbers_of(runs.front(), 0))
    out += tile_html(number.label, number.html, number.remark);
  return out + "</div>";
}

std::string run_heading(const Runs& runs, const RunFiles& run) {
  return runs.size() > 1 ? text("<h3>", xml_escaped(run.name), "</h3>") : "";
}

std::string no_trace_html(const RunFiles& run, std::string_view what) {
  return missing_html(text(what, " needs a traced step, and ", run.name, " has none."),
                      "Set profiler.steps, as in --profiler.steps 20: each rank then writes "
                      "trace/step20/rankN.json.gz.");
}

const TracedStep* drawn_step(const RunFiles& run) { return run.traces.empty() ? nullptr : &run.traces.back(); }

std::string earlier_layout_html(const RunFiles& run, std::int64_t step) {
  const Segment* segment = run.segment_of(step);
  if (run.is_of_last_layout(step) || segment == nullptr) return "";
  return text("<p class=\"note\">Step ", step, " is of an earlier layout (", steps_text(*segment), ": <code>",
              xml_escaped(segment->layout), "</code>): the last one has no traced step.</p>");
}

void add_layout_marks(Plot& plot, const RunFiles& run, bool several) {
  plot.lines_name = "other layout";
  for (std::size_t i = 1; i < run.segments.size(); ++i) {
    const Segment& segment = run.segments[i];
    if (segment.last < segment.first) continue;  // beyond the right end
    plot.marks.push_back({PlotMark::Kind::line, static_cast<double>(segment.first) - 0.5, 0,
                          text(several ? run.name + ", " : "", steps_text(segment), ": ", segment.layout)});
  }
}

}  // namespace trireme::report
