#include "trireme/workloads/orbit_data.hpp"

#include <cmath>

#include "trireme/base/error.hpp"
#include "trireme/base/philox.hpp"

namespace trireme::workloads {
namespace {

/// x + r y (1 - y) mod 1. A compiler may or may not join a multiplication and an addition into one rounding; fma leaves
/// it no choice.
double twist(double x, double y, double rate) {
  const double sum = std::fma(rate * y, 1 - y, x);
  return sum - std::floor(sum);
}

}  // namespace

Orbit twist_orbit(double rate, OrbitPoint start, int points) {
  require<ConfigError>(points > 0, "an orbit of ", points, " points: it has at least one");
  Orbit out = {start};
  out.reserve(static_cast<std::size_t>(points));
  while (std::ssize(out) < points) {
    OrbitPoint next = out.back();
    next.x = twist(next.x, next.y, rate);
    next.y = twist(next.y, next.x, rate);
    out.push_back(next);
  }
  return out;
}

LabelledOrbit random_orbit(int label, std::int64_t index, std::uint64_t seed, const std::string& purpose) {
  require(label >= 0 && label < std::ssize(kOrbitRates) && index >= 0, "orbit ", index, " of class ", label);
  const RandomStream random(seed, text("orbit ", purpose, " ", label));
  const auto at = 2 * static_cast<std::uint64_t>(index);
  return {twist_orbit(kOrbitRates[static_cast<std::size_t>(label)], {random.uniform(at), random.uniform(at + 1)}),
          label};
}

std::vector<LabelledOrbit> orbit_data(std::int64_t per_class, std::uint64_t seed, const std::string& purpose) {
  require<ConfigError>(per_class > 0, "orbit data with ", per_class, " orbits per class: at least one is needed");
  constexpr auto kClasses = std::ssize(kOrbitRates);
  std::vector<LabelledOrbit> out;
  out.reserve(static_cast<std::size_t>(per_class * kClasses));
  for (std::int64_t i = 0; i < per_class * kClasses; ++i)
    out.push_back(random_orbit(static_cast<int>(i % kClasses), i / kClasses, seed, purpose));
  return out;
}

}  // namespace trireme::workloads
