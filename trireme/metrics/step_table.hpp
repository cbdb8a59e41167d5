#pragma once
// The step table on the terminal: columns have a fixed width, because rows are printed before the later ones are known.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/terminal.hpp"
#include "trireme/metrics/step_record.hpp"

namespace trireme::metrics {

/// Fixed notation with `decimals`, if that fits `width` columns; else scientific: 2.3120, 1.24e-05, 1.24e+09, nan.
std::string short_number(double value, int decimals, int width);

/// "+0.3%", "-12.0%"
std::string signed_percent(double fraction);

class StepTable {
 public:
  /// Values that the first step could not measure have no column: the device of a run does not change. If the terminal
  /// is too narrow for all columns, the least important are omitted.
  StepTable(int width, const StepRecord& first, Style style);

  /// Without a newline, like the rows.
  std::string header() const;
  /// The notes follow the last column, as far as they fit.
  std::string row(const StepRecord& record, const std::vector<std::string>& notes) const;

 private:
  bool shown(std::size_t column) const;

  std::vector<int> widths_;  // by column; 0: omitted
  Style style_;
};

}  // namespace trireme::metrics
