#pragma once
// Logs scalars to TensorBoard event files.
#include <cstdint>
#include <filesystem>
#include <vector>

#include "trireme/base/wall_clock.hpp"
#include "trireme/metrics/event_file.hpp"
#include "trireme/metrics/log_item.hpp"

namespace trireme::metrics {

/// TensorBoard stores values as 32-bit floats, including integers.
class TensorBoardLogger final : public Logger {
 public:
  explicit TensorBoardLogger(const std::filesystem::path& folder, WallClock clock = system_wall_clock());

  void add_scalars_from_list(const std::vector<LogItem>& entries, std::int64_t iteration_step) override;

  const std::filesystem::path& path() const { return events_.path(); }

 private:
  EventFile events_;
};

}  // namespace trireme::metrics
