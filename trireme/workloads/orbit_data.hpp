#pragma once
// The ORBIT5K data: orbits of a dynamical system on the unit torus, to be classified by its parameter.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme::workloads {

/// The parameter r of the system, one per class.
inline constexpr std::array<double, 5> kOrbitRates = {2.5, 3.5, 4.0, 4.1, 4.3};
inline constexpr int kOrbitPoints = 1000;

struct OrbitPoint {
  double x = 0, y = 0;
  bool operator==(const OrbitPoint&) const = default;
};
using Orbit = std::vector<OrbitPoint>;

/// `points` iterates of the linked twist map, the first of them `start`:
///   x' = x + r y (1 - y) mod 1
///   y' = y + r x' (1 - x') mod 1
/// The map is chaotic, so that one rounding makes another orbit: every operation here has one defined result, and the
/// orbits are the same on every machine.
Orbit twist_orbit(double rate, OrbitPoint start, int points = kOrbitPoints);

struct LabelledOrbit {
  Orbit points;
  int label = 0;  // of kOrbitRates
};

/// Orbit `index` of a class, from a random start: a pure function of its arguments. Orbits of two purposes ("train",
/// "validation") are independent.
LabelledOrbit random_orbit(int label, std::int64_t index, std::uint64_t seed, const std::string& purpose);

/// `per_class` orbits of each class: sample i is orbit i / 5 of class i % 5.
std::vector<LabelledOrbit> orbit_data(std::int64_t per_class, std::uint64_t seed, const std::string& purpose = "train");

}  // namespace trireme::workloads
