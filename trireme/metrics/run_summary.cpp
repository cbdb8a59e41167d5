#include "trireme/metrics/run_summary.hpp"

#include <algorithm>
#include <sstream>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/json_text.hpp"
#include "trireme/base/utf8.hpp"
#include "trireme/metrics/log_item.hpp"
#include "trireme/metrics/metrics_file.hpp"
#include "trireme/metrics/step_table.hpp"

namespace trireme::metrics {
namespace {

constexpr std::size_t kLabelWidth = 8;

std::string counted(std::int64_t count, const char* what) {
  return text(thousands(count), " ", what, count == 1 ? "" : "s");
}

std::string gib_text(double gib) { return human_bytes(gib * 1024 * 1024 * 1024); }

std::string whole_percent(double fraction) { return format_scalar({"", fraction, ".0%"}); }

std::string outcome(const RunSummary& summary) {
  std::string line = text(counted(summary.steps, "step"), " in ", human_seconds(summary.seconds));
  if (summary.first_loss && summary.last_loss)
    line += text(" · loss ", short_number(*summary.first_loss, 3, 8), " → ", short_number(*summary.last_loss, 3, 8));
  if (summary.median_tokens_per_sec) line += text(" · median ", human_count(*summary.median_tokens_per_sec), " tok/s");
  if (summary.slowest)
    line += text(" · slowest rank ", summary.slowest->rank, " (", signed_percent(summary.slowest->excess), ")");
  if (summary.skipped > 0) line += text(" · ", counted(summary.skipped, "update"), " skipped");
  return line;
}

std::string shares_text(const RunSummary& summary) {
  std::string line = "where a step goes: ";
  for (const auto& [name, fraction] : summary.shares)
    line += text(&fraction == &summary.shares.front().second ? "" : " · ", name, " ", whole_percent(fraction));
  return line;
}

std::string memory_text(const RunSummary& summary) {
  const auto &predicted = summary.memory_predicted_gib, &measured = summary.memory_measured_gib;
  if (!measured) return "memory predicted " + gib_text(*predicted);
  if (!predicted) return "memory measured " + gib_text(*measured);
  std::string line = text("memory predicted ", gib_text(*predicted), ", measured ", gib_text(*measured));
  if (*predicted > 0) line += text(" (", signed_percent(*measured / *predicted - 1), ")");
  return line;
}

}  // namespace

SlowestRank slowest_rank(const std::vector<double>& own_work) {
  std::vector<double> sorted = own_work;
  std::ranges::sort(sorted);
  const double median = (sorted[(sorted.size() - 1) / 2] + sorted[sorted.size() / 2]) / 2;
  const auto slowest = std::ranges::max_element(own_work);
  return {.rank = static_cast<int>(slowest - own_work.begin()), .excess = median > 0 ? *slowest / median - 1 : 0};
}

std::string labelled_line(const std::string& label, const std::string& text, const Style& style) {
  const std::size_t width = display_width(label);
  // A label as wide as the column is still followed by one space.
  const std::string padding(std::max(kLabelWidth, width + 1) - width, ' ');
  return (label.empty() ? "" : style.dim(label)) + padding + text + "\n";
}

std::string wrapped_line(const std::string& label, const std::string& text, const Style& style, int width) {
  std::string out, line, next = label;
  const auto fits = [&](const std::string& words) {
    return kLabelWidth + display_width(words) <= static_cast<std::size_t>(width);
  };
  const auto end_line = [&] {
    out += labelled_line(next, line, style);
    next.clear();
    line.clear();
  };
  const auto add = [&](const std::string& words) {
    if (!line.empty() && !fits(line + " " + words)) end_line();
    line.append(line.empty() ? "" : " ").append(words);
  };
  std::istringstream words(text);
  std::string item;  // up to a "·"; broken only if it does not fit a line of its own
  const auto end_item = [&] {
    std::istringstream parts(item);
    if (fits(item))
      add(item);
    else
      for (std::string word; parts >> word;) add(word);
    item.clear();
  };
  for (std::string word; words >> word;) {
    item.append(item.empty() ? "" : " ").append(word);
    if (word == "·") end_item();
  }
  if (!item.empty()) end_item();
  end_line();
  return out;
}

std::string summary_text(const RunSummary& summary, const Style& style, std::optional<int> width) {
  const auto prose = [&](const std::string& label, const std::string& words) {
    return width ? wrapped_line(label, words, style, *width) : labelled_line(label, words, style);
  };
  std::string out = prose(summary.interrupted ? "stopped" : "done", outcome(summary));
  if (!summary.shares.empty()) out += prose("", shares_text(summary));
  if (summary.memory_predicted_gib || summary.memory_measured_gib) out += prose("", memory_text(summary));
  if (summary.saved) out += labelled_line("saved", summary.saved->string(), style);
  std::string label = "next";
  for (const std::string& command : summary.next) {
    out += labelled_line(label, command, style);
    label.clear();
  }
  return out;
}

std::string summary_json(const RunSummary& summary) {
  std::string out = text("{\"done\":{\"steps\":", summary.steps, ",\"seconds\":", json_number_or_null(summary.seconds),
                         ",\"interrupted\":", summary.interrupted ? "true" : "false", ",\"skipped\":", summary.skipped);
  const auto add = [&](const char* key, const std::optional<double>& value) {
    if (value) out += text(",\"", key, "\":", json_number_or_null(*value));
  };
  add("first_loss", summary.first_loss);
  add("last_loss", summary.last_loss);
  add("median_tokens_per_sec", summary.median_tokens_per_sec);
  if (summary.slowest) {
    out += text(",\"slowest_rank\":", summary.slowest->rank);
    add("slowest_rank_excess", summary.slowest->excess);
  }
  if (!summary.shares.empty()) {
    std::string shares;
    for (const auto& [name, fraction] : summary.shares)
      shares += text(shares.empty() ? "" : ",", json_string(name), ":", json_number_or_null(fraction));
    out += text(",\"shares\":{", shares, "}");
  }
  add("memory_predicted_gib", summary.memory_predicted_gib);
  add("memory_measured_gib", summary.memory_measured_gib);
  if (summary.saved) out += text(",\"saved\":", json_string(summary.saved->string()));
  return out + "}}";
}

}  // namespace trireme::metrics
