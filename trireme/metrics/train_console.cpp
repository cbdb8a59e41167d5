#include "trireme/metrics/train_console.hpp"

#include <cmath>
#include <ostream>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/json_text.hpp"
#include "trireme/base/log.hpp"
#include "trireme/base/stop_signals.hpp"
#include "trireme/base/utf8.hpp"
#include "trireme/metrics/log_item.hpp"
#include "trireme/metrics/metrics_file.hpp"
#include "trireme/metrics/progress_bar.hpp"

namespace trireme::metrics {
namespace {

constexpr int kLinesAHeader = 30;

std::string json_word(const char* key, const std::string& text) {
  return std::string("{\"").append(key).append("\":").append(json_string(text)).append("}\n");
}

double seconds_between(std::chrono::steady_clock::time_point from, std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

/// In metrics.jsonl and in the summary of the run, but too much for a line.
bool is_detail(std::string_view tag) {
  return tag.starts_with("own_work_") ||
         (tag.ends_with("_time_frac") && tag != "data_time_frac" && tag != "bubble_time_frac");
}

}  // namespace

ConsoleMode console_mode(std::string_view word) {
  if (word == "auto" || word == "bar") return ConsoleMode::bar;
  if (word == "plain") return ConsoleMode::plain;
  if (word == "json") return ConsoleMode::json;
  if (word == "quiet") return ConsoleMode::quiet;
  throw ConfigError(text("metrics.console = \"", word, "\": must be one of auto, bar, plain, json, quiet"));
}

TrainConsole::TrainConsole(std::ostream& out, ConsoleOptions options)
    : out_(out),
      options_(std::move(options)),
      style_(options_.terminal.tty && options_.terminal.color),
      begun_(options_.clock()) {
  require<ConfigError>(options_.interval >= 1, "metrics.interval = ", options_.interval, ": must be at least 1");
}

TrainConsole::~TrainConsole() { erase_bar(); }

void TrainConsole::header(const std::vector<std::pair<std::string, std::string>>& lines) {
  if (options_.mode == ConsoleMode::json || options_.mode == ConsoleMode::quiet) return;
  std::string all;
  // Only a terminal has a width: in a log file one search finds a whole line.
  for (const auto& [label, words] : lines)
    all += options_.terminal.tty ? wrapped_line(label, words, style_, options_.terminal.width)
                                 : labelled_line(label, words, style_);
  print(all);
}

void TrainConsole::begin(std::int64_t steps) {
  if (options_.mode == ConsoleMode::bar) draw(text("  step 1 of ", thousands(steps)));
}

bool TrainConsole::due(const StepRecord& record) const {
  return !last_ || record.step % options_.interval == 0 || record.step == record.steps || record.val_loss.has_value();
}

void TrainConsole::step(const StepRecord& record) {
  const bool printed = due(record);
  last_step_end_ = options_.clock();
  if (!last_) {
    first_step_ = record.step;
    first_step_end_ = last_step_end_;
  }
  last_ = record;
  switch (options_.mode) {
    case ConsoleMode::bar:
      if (printed) print_row(record);
      if (!drawn_at_ || last_step_end_ - *drawn_at_ >= std::chrono::milliseconds(200)) draw_bar();
      break;
    case ConsoleMode::plain:
      if (printed) print_plain(record);
      break;
    case ConsoleMode::json:
      if (printed) print(json_record(record) + "\n");
      break;
    case ConsoleMode::quiet: break;
  }
}

void TrainConsole::print_row(const StepRecord& record) {
  std::string lines;
  if (!table_) {
    // Only a terminal has a width: a log file has room for all columns.
    constexpr int kWide = 200;
    table_.emplace(options_.terminal.tty ? options_.terminal.width : kWide, record, style_);
    lines = "\n" + table_->header() + "\n";
  } else if (lines_since_header_ >= kLinesAHeader) {
    lines = table_->header() + "\n";
    lines_since_header_ = 0;
  }
  std::vector<std::string> notes;
  if (record.skipped) notes.push_back("update skipped");
  if (record.val_loss)
    notes.push_back("val loss " + (std::isnan(*record.val_loss) ? "none" : short_number(*record.val_loss, 4, 8)));
  notes.insert(notes.end(), notes_.begin(), notes_.end());
  notes_.clear();
  print(lines + table_->row(record, notes) + "\n");
  ++lines_since_header_;
}

void TrainConsole::print_plain(const StepRecord& record) {
  std::string line = "step=" + std::to_string(record.step);
  for (const LogItem& item : log_items(record)) {
    if (item.tag == "skipped" && !record.skipped) continue;  // only shown if true, so that it can be searched for
    if (is_detail(item.tag)) continue;
    line.append(" ").append(item.tag).append("=").append(format_scalar(item));
  }
  for (const std::string& note : notes_) line.append(" note=").append(log_word(note));
  notes_.clear();
  print(line + "\n");
}

void TrainConsole::note(std::string text) {
  if (options_.mode == ConsoleMode::json) {
    print(json_word("note", text));
  } else if (options_.mode != ConsoleMode::quiet) {
    notes_.push_back(std::move(text));
  }
}

void TrainConsole::warning(const std::string& text) {
  options_.on_warning(text);
  const bool had_bar = bar_is_drawn_;
  print(options_.mode == ConsoleMode::json ? json_word("warning", text) : style_.yellow("warning: " + text) + "\n");
  ++lines_since_header_;
  // Not subject to the 200 ms limit: a large model's next step may be a minute away.
  if (had_bar) draw_bar();
}

void TrainConsole::finish(RunSummary summary) {
  if (options_.mode == ConsoleMode::quiet) summary.next.clear();
  std::string lines;
  for (const std::string& note : notes_)
    lines += options_.mode == ConsoleMode::plain ? "note=" + log_word(note) + "\n" : "  " + style_.dim(note) + "\n";
  notes_.clear();
  if (options_.mode == ConsoleMode::bar) lines += "\n";
  const auto width = options_.terminal.tty ? std::optional(options_.terminal.width) : std::nullopt;
  lines += options_.mode == ConsoleMode::json ? summary_json(summary) + "\n" : summary_text(summary, style_, width);
  print(lines);
}

void TrainConsole::print(const std::string& lines) {
  // In one write, so that the terminal never shows a state without both.
  out_ << (bar_is_drawn_ ? "\r\x1B[K" : "") << lines << std::flush;
  bar_is_drawn_ = false;
  StopSignals::bar_is_drawn(false);
}

void TrainConsole::erase_bar() {
  if (bar_is_drawn_) print("");
}

void TrainConsole::draw_bar() {
  if (!last_) return;
  const Time now = options_.clock();
  BarFacts facts{.step = last_->step,
                 .steps = last_->steps,
                 .loss = last_->loss,
                 .tokens_per_sec = last_->tokens_per_sec,
                 .elapsed_s = seconds_between(begun_, now)};
  // Estimated from the steps after the first, which includes setup.
  if (const auto timed = last_->step - first_step_; timed > 0)
    facts.left_s = seconds_between(first_step_end_, last_step_end_) / static_cast<double>(timed) *
                   static_cast<double>(last_->steps - last_->step);
  drawn_at_ = now;
  draw(bar_text(facts, options_.terminal.width));
}

void TrainConsole::draw(const std::string& bar) {
  if (!options_.terminal.tty || static_cast<int>(display_width(bar)) >= options_.terminal.width) return;
  StopSignals::bar_is_drawn(true);
  out_ << "\r\x1B[K" << bar << std::flush;
  bar_is_drawn_ = true;
}

}  // namespace trireme::metrics
