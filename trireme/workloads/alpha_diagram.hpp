#pragma once
// Persistence diagrams of points in the plane. gudhi.cpp computes them in a build with TRIREME_GUDHI=ON; without it,
// no_gudhi.cpp refuses.
#include <vector>

#include "trireme/workloads/orbit_data.hpp"

namespace trireme::workloads {

/// A component (dim 0) or loop (dim 1) of the union of discs around the points, and the radii at which it appears and
/// disappears.
struct PersistencePair {
  double birth = 0, death = 0;
  int dim = 0;
  double persistence() const { return death - birth; }
  bool operator==(const PersistencePair&) const = default;
};
using Diagram = std::vector<PersistencePair>;

/// Whether this build has GUDHI.
bool has_gudhi();

/// The pairs of dims 0 and 1 of the alpha complex, most persistent first, without the one component that stays for
/// ever. ConfigError in a build without GUDHI.
Diagram alpha_diagram(const Orbit& points);

}  // namespace trireme::workloads
