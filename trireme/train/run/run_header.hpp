#pragma once
// The header lines that a run prints before its first step.
#include <string>
#include <utility>
#include <vector>

#include "trireme/config/schema/config.hpp"

namespace trireme {

struct RunHeader {
  std::string program;  // "trireme 0.1.0 · libtorch 2.13.0 · 4 ranks (trireme launch; shared memory, cpu)"
  std::string layout;   // "dp=2 tp=2 zero=1"
  std::string data;
  std::string stages = {};  // of a pipeline: "1f1b · layers 0-1 | 2-3 · ideal bubble 20 %"
  std::string memory;
  std::string speed = {};  // predicted, on a GPU that the planner knows: "58 ms per step · MFU 45 %"
  std::string output;
};

/// Label and text of each line.
std::vector<std::pair<std::string, std::string>> run_header_lines(const Config& config, const RunHeader& facts);

}  // namespace trireme
