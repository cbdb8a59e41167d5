#include "trireme/metrics/progress_bar.hpp"

#include <gtest/gtest.h>

#include "trireme/base/utf8.hpp"

namespace trireme::metrics {
namespace {

BarFacts halfway() {
  return {.step = 212, .steps = 400, .loss = 2.8712, .tokens_per_sec = 59'100, .elapsed_s = 7.4, .left_s = 3725};
}

TEST(ProgressBar, SaysHowFarAndHowLong) {
  EXPECT_EQ(bar_text(halfway(), 120),
            "  ██████████████░░░░░░░░░░░░░░  212/400  53%   loss 2.871   59.1K tok/s   elapsed 7 s   ETA 1:02:05");
}

TEST(ProgressBar, IsFullWhenAllIsDoneAndNotBefore) {
  BarFacts facts = halfway();
  facts.step = 399;
  facts.left_s.reset();
  EXPECT_EQ(bar_text(facts, 120),
            "  ███████████████████████████░  399/400  99%   loss 2.871   59.1K tok/s   elapsed 7 s   ETA –");
  facts.step = 400;
  facts.left_s = 0;
  EXPECT_EQ(bar_text(facts, 120),
            "  ████████████████████████████  400/400  100%   loss 2.871   59.1K tok/s   elapsed 7 s   ETA 0 s");
}

TEST(ProgressBar, LosesItsPartsWhereTheTerminalIsNarrow) {
  EXPECT_EQ(bar_text(halfway(), 90),
            "  ██████████████░░░░░░░░░░░░░░  212/400  53%   loss 2.871   59.1K tok/s   ETA 1:02:05");
  EXPECT_EQ(bar_text(halfway(), 80), "  ██████░░░░░░  212/400  53%   loss 2.871   59.1K tok/s   ETA 1:02:05");
  EXPECT_EQ(bar_text(halfway(), 60), "  ██████░░░░░░  212/400  53%   loss 2.871   ETA 1:02:05");
  EXPECT_EQ(bar_text(halfway(), 50), "  ██████░░░░░░  212/400  53%   ETA 1:02:05");
  EXPECT_EQ(bar_text(halfway(), 20), "  212/400  53%");
  EXPECT_EQ(bar_text(halfway(), 14), "");
  for (int width = 1; width < 130; ++width)
    EXPECT_LT(static_cast<int>(display_width(bar_text(halfway(), width))), width);
}

TEST(ProgressBar, OfNoStepsIsEmpty) { EXPECT_EQ(bar_text({}, 20), "  0/0  0%"); }

}  // namespace
}  // namespace trireme::metrics
