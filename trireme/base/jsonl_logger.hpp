#pragma once
// Logs scalars as JSON lines: {"step":10,"loss":2.3,"tokens":20480}.
#include <cstdint>
#include <filesystem>
#include <vector>

#include "trireme/base/file_output.hpp"
#include "trireme/base/log_item.hpp"

namespace trireme {

/// Appends to `path`; a line is written, unbuffered, when the call returns. Values have full precision, regardless of
/// log_format. If a tag occurs twice in one call the last value counts, as it does for JSON parsers.
class JsonlLogger final : public Logger {
 public:
  explicit JsonlLogger(const std::filesystem::path& path);

  /// Throws ConfigError for the tag "step", which the record already has.
  void add_scalars_from_list(const std::vector<LogItem>& entries, std::int64_t iteration_step) override;

 private:
  AppendFile file_;
};

}  // namespace trireme
