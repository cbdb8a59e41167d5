#pragma once
// Forwards scalars to several loggers.
#include <cstdint>
#include <memory>
#include <vector>

#include "trireme/base/log_item.hpp"

namespace trireme {

/// Shared ownership, because some loggers must be closed by their creator (HubLogger::close).
class TeeLogger final : public Logger {
 public:
  explicit TeeLogger(std::vector<std::shared_ptr<Logger>> loggers);

  /// If a logger fails (a full disk) the others still get the scalars: the first error is rethrown at the end.
  void add_scalars_from_list(const std::vector<LogItem>& entries, std::int64_t iteration_step) override;
  void flush() override;

 private:
  std::vector<std::shared_ptr<Logger>> loggers_;
};

}  // namespace trireme
