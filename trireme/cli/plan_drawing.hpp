#pragma once
// Plans as points: memory of a rank against speed.
#include <string>
#include <vector>

#include "trireme/planner/search.hpp"

namespace trireme::cli {

/// SVG; the plans that no other one beats in both are connected.
std::string plan_drawing_svg(const std::vector<planner::Plan>& plans, double memory_bytes);

}  // namespace trireme::cli
