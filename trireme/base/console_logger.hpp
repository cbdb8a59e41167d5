#pragma once
// Logs scalars as one grep-able line per step: `step=10 loss=2.3 tokens_per_sec=58.4K`.
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/log.hpp"
#include "trireme/base/log_item.hpp"

namespace trireme {

class ConsoleLogger final : public Logger {
 public:
  /// `prefix`, if not empty, precedes "step=", separated by a space.
  explicit ConsoleLogger(LogSink sink, std::string prefix = "");

  void add_scalars_from_list(const std::vector<LogItem>& entries, std::int64_t iteration_step) override;

 private:
  LogSink sink_;
  std::string prefix_;
};

}  // namespace trireme
