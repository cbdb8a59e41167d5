#include "trireme/base/error.hpp"
#include "trireme/workloads/alpha_diagram.hpp"

namespace trireme::workloads {

bool has_gudhi() { return false; }

Diagram alpha_diagram(const Orbit& points) {
  throw ConfigError(text("the persistence diagram of ", points.size(), " points: this build has no GUDHI\n",
                         "  fix: install libgudhi-dev and configure with -DTRIREME_GUDHI=ON"));
}

}  // namespace trireme::workloads
