#pragma once
// Writes that may fail without ending the run: a full disk costs records, not hours of training.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace trireme::metrics {

class BestEffort {
 public:
  /// `what`: "metrics.jsonl".
  explicit BestEffort(std::string what) : what_(std::move(what)) {}

  /// Calls `write`, which writes one record or throws DataError and leaves no part of it. Returns what to tell the
  /// user, if anything: the first failure in a row, and the first success after failures. Other exceptions pass.
  [[nodiscard]] std::optional<std::string> attempt(const std::function<void()>& write);

  /// Records lost so far.
  std::int64_t lost() const { return lost_; }
  const std::string& what() const { return what_; }

 private:
  std::string what_;
  std::int64_t lost_ = 0, lost_in_a_row_ = 0;
};

}  // namespace trireme::metrics
