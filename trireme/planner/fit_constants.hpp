#pragma once
// Fits constants of a model to measurements.
#include <functional>
#include <string>
#include <vector>

namespace trireme::planner {

struct FittedConstant {
  std::string name;
  double* value;
  double low, high;
};

/// Changes one constant at a time by smaller and smaller factors, as long as misfit() becomes smaller: for some tens of
/// constants and a misfit that takes milliseconds. `passes`: begins again with large factors so often.
void fit_constants(const std::vector<FittedConstant>& constants, const std::function<double()>& misfit, int passes = 1);

}  // namespace trireme::planner
