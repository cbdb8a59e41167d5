#include "trireme/metrics/tensorboard_logger.hpp"

#include <utility>
#include <variant>

namespace trireme::metrics {

TensorBoardLogger::TensorBoardLogger(const std::filesystem::path& folder, WallClock clock)
    : events_(folder, std::move(clock)) {}

void TensorBoardLogger::add_scalars_from_list(const std::vector<LogItem>& entries, std::int64_t iteration_step) {
  check_formats(entries);
  std::vector<EventScalar> scalars;
  scalars.reserve(entries.size());
  for (const LogItem& item : entries) {
    scalars.push_back({item.tag, std::visit([](auto value) { return static_cast<float>(value); }, item.scalar_value)});
  }
  events_.add_scalars(iteration_step, scalars);
}

}  // namespace trireme::metrics
