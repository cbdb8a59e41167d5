#pragma once
// The text of the progress bar under the step table. Independent of the terminal except for its width.
#include <cstdint>
#include <optional>
#include <string>

namespace trireme::metrics {

struct BarFacts {
  std::int64_t step = 0, steps = 0;
  double loss = 0;
  double tokens_per_sec = 0;
  double elapsed_s = 0;
  std::optional<double> left_s{};  // unknown before the second step
};

/// Always shorter than `width`, so that no terminal wraps it: parts are omitted until it fits, if necessary all of it.
std::string bar_text(const BarFacts& facts, int width);

}  // namespace trireme::metrics
