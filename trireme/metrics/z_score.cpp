#include "trireme/metrics/z_score.hpp"

#include <cmath>
#include <limits>
#include <utility>

#include "trireme/base/error.hpp"

namespace trireme::metrics {

ZScore::ZScore(std::deque<double> values) : values_(std::move(values)) {
  require(values_.size() <= kWindow, "a z-score over ", kWindow, " values is given ", values_.size());
  for (const double value : values_)
    require(std::isfinite(value), "a z-score is given a window with the value ", value);
}

std::optional<double> ZScore::add(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  if (values_.size() == kWindow) values_.pop_front();
  values_.push_back(value);
  if (values_.size() < kEnough) return std::nullopt;

  // Differences from the new value, not the values themselves: equal values then have a deviation of exactly zero.
  // Summed from scratch each time, oldest first: running sums would accumulate rounding errors, and a resumed run would
  // have different ones.
  const auto count = static_cast<double>(values_.size());
  double mean = 0;
  for (const double other : values_) mean += (other - value) / count;
  double variance = 0;
  for (const double other : values_) variance += (other - value - mean) * (other - value - mean) / count;
  const double deviation = std::sqrt(variance);
  if (!(deviation > 0) || !std::isfinite(deviation)) return std::nullopt;
  return -mean / deviation;
}

// With the mean and variance of the k values that stay, and the new value d above that mean, the score z is
// z^2 = k d^2 / ((k + 1) variance + d^2).
double ZScore::value_of_score(double score) const {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  const std::size_t first = values_.size() == kWindow ? 1 : 0, stay = values_.size() - first;
  const auto count = static_cast<double>(stay);
  if (stay + 1 < kEnough || count <= score * score) return kNone;
  double mean = values_.back();  // by differences: of equal values exactly the value
  for (std::size_t i = first; i < values_.size(); ++i) mean += (values_[i] - values_.back()) / count;
  double variance = 0;
  for (std::size_t i = first; i < values_.size(); ++i) variance += (values_[i] - mean) * (values_[i] - mean) / count;
  if (!std::isfinite(variance)) return kNone;
  return mean + score * std::sqrt((count + 1) * variance / (count - score * score));
}

}  // namespace trireme::metrics
