#include "trireme/metrics/step_table.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <optional>

#include "trireme/base/human.hpp"
#include "trireme/base/utf8.hpp"
#include "trireme/metrics/log_item.hpp"

namespace trireme::metrics {
namespace {

struct TableColumn {
  const char* title;
  int width;      // including the gap before it
  int leave_out;  // 1 is omitted first if there is no room; 0 is never omitted
};

constexpr std::size_t kStep = 0, kLoss = 1;
constexpr const char* kDash = "–";  // not measured
constexpr std::array<TableColumn, 12> kColumns{{{"step", 5, 0},
                                                {"loss", 10, 0},
                                                {"(z)", 6, 7},
                                                {"grad", 9, 9},
                                                {"lr", 9, 8},
                                                {"tok/s", 8, 10},
                                                {"tok/s/rank", 12, 1},
                                                {"MFU", 7, 6},
                                                {"peak", 10, 5},
                                                {"data", 7, 3},
                                                {"comm", 7, 4},
                                                {"bubble", 8, 2}}};

std::string formatted(double value, const std::string& format) { return format_scalar({"", value, format}); }

std::string with_sign(std::string text, double value) { return (std::signbit(value) ? "" : "+") + text; }

std::string percent(double fraction) { return formatted(fraction, ".1%"); }

std::string or_dash(const std::optional<double>& value, std::string (*show)(double)) {
  return value ? show(*value) : kDash;
}

std::string cell(const StepRecord& record, std::size_t column) {
  switch (column) {
    case kStep: return std::to_string(record.step);
    case kLoss: return record.has_no_label() ? "-" : short_number(record.loss, 4, 8);
    case 2: return record.loss_z ? with_sign(formatted(*record.loss_z, ".1f"), *record.loss_z) : "";
    case 3: return short_number(record.grad_norm, 3, 8);
    case 4: return formatted(record.lr, ".1e");
    case 5: return human_count(record.tokens_per_sec);
    case 6: return human_count(record.tokens_per_sec_per_rank);
    case 7: return or_dash(record.mfu, percent);
    case 8: return or_dash(record.mem_peak_gib, [](double gib) { return human_bytes(gib * 1024 * 1024 * 1024); });
    case 9: return percent(record.data_time_frac);
    case 10: return or_dash(record.comm_exposed_frac, percent);
    default: return or_dash(record.bubble_frac, percent);
  }
}

/// At least one space, so that numbers that are too long never run together.
std::string padding(const std::string& text, int width) {
  const auto wanted = static_cast<int>(display_width(text));
  return std::string(static_cast<std::size_t>(std::max(1, width - wanted)), ' ');
}

std::string without_end_spaces(std::string text) {
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

}  // namespace

std::string short_number(double value, int decimals, int width) {
  const std::string fixed = formatted(value, "." + std::to_string(decimals) + "f");
  const bool vanishes = value != 0 && std::abs(value) < 10 * std::pow(10.0, -decimals);
  if (static_cast<int>(fixed.size()) <= width && !vanishes) return fixed;
  return formatted(value, ".2e");
}

std::string signed_percent(double fraction) { return with_sign(percent(fraction), fraction); }

StepTable::StepTable(int width, const StepRecord& first, Style style) : style_(style) {
  for (std::size_t i = 0; i < kColumns.size(); ++i) widths_.push_back(cell(first, i) == kDash ? 0 : kColumns[i].width);
  widths_[kStep] = std::max(widths_[kStep], static_cast<int>(std::to_string(first.steps).size()) + 1);
  for (int turn = 1; std::accumulate(widths_.begin(), widths_.end(), 0) > width; ++turn) {
    const auto column =
        std::find_if(kColumns.begin(), kColumns.end(), [&](const TableColumn& c) { return c.leave_out == turn; });
    if (column == kColumns.end()) break;
    widths_[static_cast<std::size_t>(column - kColumns.begin())] = 0;
  }
}

bool StepTable::shown(std::size_t column) const { return widths_[column] > 0; }

std::string StepTable::header() const {
  std::string line;
  for (std::size_t i = 0; i < kColumns.size(); ++i)
    if (shown(i)) line.append(padding(kColumns[i].title, widths_[i])).append(kColumns[i].title);
  return style_.dim(line);
}

std::string StepTable::row(const StepRecord& record, const std::vector<std::string>& notes) const {
  std::string line;
  for (std::size_t i = 0; i < kColumns.size(); ++i) {
    if (!shown(i)) continue;
    const std::string text = cell(record, i);
    line.append(padding(text, widths_[i])).append(i == kLoss ? style_.bold(text) : text);
  }
  std::string behind;
  for (const std::string& note : notes) behind.append(behind.empty() ? "" : " · ").append(note);
  if (behind.empty()) return without_end_spaces(line);
  return line + "   " + style_.dim(behind);
}

}  // namespace trireme::metrics
