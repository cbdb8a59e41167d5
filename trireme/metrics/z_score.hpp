#pragma once
// Rolling z-score: how many standard deviations a value is from the previous ones, to detect spikes.
#include <cstddef>
#include <deque>
#include <optional>

namespace trireme::metrics {

/// Over the last 128 values, including the new one, with the standard deviation of the whole window, as in llm.c: with
/// n values no score can exceed sqrt(n - 1). llm.c waits for a full window; here scores start at 8 values.
class ZScore {
 public:
  static constexpr std::size_t kWindow = 128;
  static constexpr std::size_t kEnough = 8;

  ZScore() = default;
  /// With the values() of an earlier one, so that a resumed run computes the same scores, and skips, as without the
  /// interruption.
  explicit ZScore(std::deque<double> values);

  /// Adds `value` to the window and returns its score. nullopt if the window has too few values or all are equal. A
  /// non-finite value has no score and is not added: it would hide everything for 128 steps.
  std::optional<double> add(double value);

  /// The value whose score, added next, would be `score`; larger values have larger scores. Infinity if no value has
  /// it.
  double value_of_score(double score) const;

  /// Oldest first.
  const std::deque<double>& values() const { return values_; }

 private:
  std::deque<double> values_;
};

}  // namespace trireme::metrics
