#pragma once
// The record of a step as one JSON object per line, and as TensorBoard scalars. docs/training_output.md lists the keys.
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/base/file_output.hpp"
#include "trireme/metrics/log_item.hpp"
#include "trireme/metrics/step_record.hpp"

namespace trireme::metrics {

/// C's "%a", independent of the locale: parses back to the same double, bitwise. "nan", "inf", "-inf" otherwise.
std::string hex_float(double value);

/// A JSON number with the shortest digits that parse back to the same value; null if it is not finite.
std::string json_number_or_null(double value);

/// {"step":10,"loss":2.5,"loss_hex":"0x1.4p+1", ...} without a newline. Absent fields are omitted.
std::string json_record(const StepRecord& record);

/// The same fields without the step and the hexadecimal ones; tags are the keys of json_record, skipped is 0 or 1. The
/// log formats are for human-readable lines.
std::vector<LogItem> log_items(const StepRecord& record);

/// What is left in a file of records.
struct KeptRecords {
  std::int64_t last = 0;                    // step of the last record; 0: there is none
  std::int64_t gap_begin = 0, gap_end = 0;  // the first steps between two records that have none; 0: no gap
};

/// For a run that resumes: removes the records of later steps, which will be written again, and a line that was cut
/// short. The file is replaced at once. DataError if it cannot be read or written.
KeptRecords drop_records_after(const std::filesystem::path& path, std::int64_t step);

/// metrics.jsonl of a run. Appends to an existing file; a line is written, unbuffered, when the call returns.
class MetricsFile {
 public:
  explicit MetricsFile(const std::filesystem::path& path);

  void append(const StepRecord& record);

  const std::filesystem::path& path() const { return file_.path(); }

 private:
  AppendFile file_;
};

}  // namespace trireme::metrics
