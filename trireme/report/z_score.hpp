#pragma once
// How far a number is from those before it, in standard deviations: a spike is seen before a person would see it.
#include <cstddef>
#include <deque>
#include <optional>

namespace trireme::report {

/// Over the last 128 values, the new one among them, with the deviation of the whole window, as in llm.c: of n values no score can be
/// beyond sqrt(n - 1). llm.c waits for a full window; here a score is given from 8 values on.
class ZScore {
 public:
  static constexpr std::size_t kWindow = 128;
  static constexpr std::size_t kEnough = 8;

  ZScore() = default;
  /// With the values() of an earlier one, so that a resumed run scores, and skips, as if it had never stopped.
  explicit ZScore(std::deque<double> values);

  /// The score of `value`, which joins the window. None while the window has too few values or all are equal. A value that is not finite
  /// has no score and stays out: it would hide everything for 128 steps.
  std::optional<double> add(double value);

  /// Oldest first.
  const std::deque<double>& values() const { return values_; }

 private:
  std::deque<double> values_;
};

}  // namespace trireme::report
