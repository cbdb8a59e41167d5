#pragma once
// Scalars of a run as in nanotron: a list of LogItem per step, and the interface of the loggers that write them.
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace trireme::metrics {

struct LogItem {
  std::string tag;
  std::variant<double, std::int64_t> scalar_value;
  std::optional<std::string> log_format{};  // for display; see format_scalar
};

class Logger {
 public:
  virtual ~Logger() = default;

  /// Throws ConfigError for an unknown log_format, before anything is written.
  virtual void add_scalars_from_list(const std::vector<LogItem>& entries, std::int64_t iteration_step) = 0;

  virtual void flush() {}
};

/// The value formatted according to log_format:
///   absent          six significant digits; integers in full
///   "human_format"  1.2K, 58.4K, 1.1M (human_count)
///   a subset of Python's format specification, [,][.N][type]: "," ".4f" ".3E" ",d" ".1%"
///     type          e E f F g G %, or d, which is for integers and takes no .N; default g
///     .N            digits, 0 to 99; default 6; for an integer it needs a type other than d
///     ,             thousands separators; alone it keeps every digit of the value
/// Anything else is a ConfigError that names the tag and the format.
std::string format_scalar(const LogItem& item);

/// Called first by every logger: throws what format_scalar would throw for any of the entries.
void check_formats(const std::vector<LogItem>& entries);

}  // namespace trireme::metrics
