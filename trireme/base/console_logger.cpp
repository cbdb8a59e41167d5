#include "trireme/base/console_logger.hpp"

#include <utility>

namespace trireme {

ConsoleLogger::ConsoleLogger(LogSink sink, std::string prefix) : sink_(std::move(sink)), prefix_(std::move(prefix)) {}

void ConsoleLogger::add_scalars_from_list(const std::vector<LogItem>& entries, std::int64_t iteration_step) {
  std::string line;
  if (!prefix_.empty()) line.append(prefix_).append(" ");
  line.append("step=").append(std::to_string(iteration_step));
  // An invalid format throws here, before anything is written.
  for (const LogItem& item : entries)
    line.append(" ").append(log_word(item.tag)).append("=").append(format_scalar(item));
  line += '\n';
  sink_(line);
}

}  // namespace trireme
