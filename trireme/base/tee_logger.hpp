#pragma once
// The same scalars to several loggers.
#include <cstdint>
#include <memory>
#include <vector>

#include "trireme/base/log_item.hpp"

namespace trireme {

/// Shared, because some loggers have an end of their own (HubLogger::close) that their maker must still reach.
class TeeLogger final : public Logger {
 public:
  explicit TeeLogger(std::vector<std::shared_ptr<Logger>> loggers);

  /// A logger that fails (a full disk) does not keep the scalars from the others: the first failure is thrown at the
  /// end.
  void add_scalars_from_list(const std::vector<LogItem>& entries, std::int64_t iteration_step) override;
  void flush() override;

 private:
  std::vector<std::shared_ptr<Logger>> loggers_;
};

}  // namespace trireme
