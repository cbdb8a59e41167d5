#include "trireme/planner/fit_constants.hpp"

#include <algorithm>

namespace trireme::planner {

void fit_constants(const std::vector<FittedConstant>& constants, const std::function<double()>& misfit, int passes) {
  constexpr int kRounds = 3;
  constexpr double kFirst = 0.3, kLast = 0.015;
  double best = misfit();
  for (double step = kFirst; passes > 0; step = step > kLast ? step * 0.7 : (--passes, kFirst))
    for (int round = 0; round < kRounds; ++round)
      for (const FittedConstant& constant : constants)
        for (const double factor : {1 + step, 1 / (1 + step)}) {
          const double before = *constant.value;
          *constant.value = std::clamp(before * factor, constant.low, constant.high);
          const double found = misfit();
          if (found < best) {
            best = found;
            break;
          }
          *constant.value = before;
        }
}

}  // namespace trireme::planner
