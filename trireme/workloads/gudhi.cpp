// The only source that includes GUDHI (and, through it, CGAL).
#include <algorithm>
#include <cmath>
#include <tuple>

#include <CGAL/Epick_d.h>
#include <gudhi/Alpha_complex.h>
#include <gudhi/Persistent_cohomology.h>
#include <gudhi/Simplex_tree.h>

#include "trireme/base/error.hpp"
#include "trireme/workloads/alpha_diagram.hpp"

namespace trireme::workloads {

bool has_gudhi() { return true; }

Diagram alpha_diagram(const Orbit& points) {
  using Kernel = CGAL::Epick_d<CGAL::Dimension_tag<2>>;
  std::vector<Kernel::Point_d> corners;
  corners.reserve(points.size());
  for (const OrbitPoint& p : points) corners.emplace_back(p.x, p.y);

  Gudhi::Simplex_tree<> complex;
  Gudhi::alpha_complex::Alpha_complex<Kernel> alpha(corners);
  require<InternalError>(alpha.create_complex(complex), "GUDHI made no alpha complex of ", points.size(), " points");

  Gudhi::persistent_cohomology::Persistent_cohomology<Gudhi::Simplex_tree<>, Gudhi::persistent_cohomology::Field_Zp>
      cohomology(complex);
  cohomology.init_coefficients(2);
  cohomology.compute_persistent_cohomology();

  Diagram out;
  for (int dim = 0; dim < 2; ++dim)
    for (const auto& [birth, death] : cohomology.intervals_in_dimension(dim))
      // GUDHI's values are squared radii.
      if (std::isfinite(death)) out.push_back({std::sqrt(std::max(birth, 0.0)), std::sqrt(death), dim});
  std::sort(out.begin(), out.end(), [](const PersistencePair& a, const PersistencePair& b) {
    return std::tuple(-a.persistence(), a.birth, a.dim) < std::tuple(-b.persistence(), b.birth, b.dim);
  });
  return out;
}

}  // namespace trireme::workloads
