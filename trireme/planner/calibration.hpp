#pragma once
// A machine as measured by trainings on it, in a file that `trireme plan` reads (trireme bench machine).
#include <string>
#include <vector>

#include "trireme/planner/step_time.hpp"

namespace trireme::planner {

struct Calibration {
  Machine machine;  // per_host: as many ranks as it was measured with
  Software software;
};

/// Where the fit begins: a host with some CPU cores, or a GPU of the table.
Calibration uncalibrated_cpu(int ranks_of_host);

struct MeasuredStep {
  StepWork work;
  double seconds = 0;
};

/// Fits the constants that the steps depend on.
Calibration calibrate(const std::vector<MeasuredStep>& steps, Calibration start);
/// The median of |predicted / measured - 1|.
double median_error(const std::vector<MeasuredStep>& steps, const Calibration& calibration);

/// TOML, and back. ConfigError that names the file and the key.
std::string to_toml(Calibration calibration);
Calibration read_calibration(const std::string& path);

}  // namespace trireme::planner
