#pragma once
// The figures of docs/parallelism/, one per page. What they show is computed by the code that they are about.
#include <array>
#include <string>
#include <vector>

#include "trireme/base/drawing.hpp"
#include "trireme/config/schema/config.hpp"

namespace trireme::figures {

/// Colours of ranks 0 to 3: different also for colour-blind readers.
inline constexpr std::array kRankColours{"#5b9bd5", "#eda13a", "#4db38a", "#c983b5"};

/// A config with a preset's model and these keys, "parallelism.tp=2", checked.
Config config_of_preset(const std::string& preset, const std::vector<std::string>& settings = {});

Drawing draw_zero();      // memory per rank of each stage
Drawing draw_tensor();    // a column-parallel and a row-parallel layer over two ranks
Drawing draw_pipeline();  // schedules on one time scale
Drawing draw_context();   // which rank attends to which keys, and its work
Drawing draw_expert();    // tokens to experts and back, and both views of the ranks

struct Figure {
  std::string name;  // of the page and of the file, without .svg
  Drawing drawing;
};
std::vector<Figure> all_figures();

}  // namespace trireme::figures
