#pragma once
// Scalars as JSON lines: {"step":10,"loss":2.3,"tokens":20480}.
#include <cstdint>
#include <filesystem>
#include <vector>

#include "trireme/base/file_output.hpp"
#include "trireme/base/log_item.hpp"

namespace trireme {

/// Appends to `path`; a line is on its way to the disk when the call returns. Values are written in full, whatever
/// their log_format. Of a tag given twice in one call the last value counts, as it does for readers of JSON.
class JsonlLogger final : public Logger {
 public:
  explicit JsonlLogger(const std::filesystem::path& path);

  /// ConfigError for the tag "step", which the record has already.
  void add_scalars_from_list(const std::vector<LogItem>& entries, std::int64_t iteration_step) override;

 private:
  AppendFile file_;
};

}  // namespace trireme
