#include "trireme/base/tee_logger.hpp"

#include <exception>
#include <utility>

namespace trireme {
namespace {

template <class Action>
void for_all(const std::vector<std::shared_ptr<Logger>>& loggers, Action action) {
  std::exception_ptr first;
  for (const auto& logger : loggers) {
    try {
      action(*logger);
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace

TeeLogger::TeeLogger(std::vector<std::shared_ptr<Logger>> loggers) : loggers_(std::move(loggers)) {}

void TeeLogger::add_scalars_from_list(const std::vector<LogItem>& entries, std::int64_t iteration_step) {
  check_formats(entries);
  for_all(loggers_, [&](Logger& logger) { logger.add_scalars_from_list(entries, iteration_step); });
}

void TeeLogger::flush() {
  for_all(loggers_, [](Logger& logger) { logger.flush(); });
}

}  // namespace trireme
