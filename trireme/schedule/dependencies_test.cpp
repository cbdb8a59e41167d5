#include "trireme/schedule/dependencies.hpp"

#include <gtest/gtest.h>

#include "trireme/schedule/generate.hpp"

namespace trireme::schedule {
namespace {

TEST(LastAwaited, OfTwoRanks) {
  // rank 0: 0F0 0F1 0B0 0F2 0B1 0B2      rank 1: 1F0 1B0 1F1 1B1 1F2 1B2
  const std::map<Action, int> on_0 = last_awaited(make_schedule("1f1b", 2, 3), 0);
  EXPECT_EQ(on_0.at({ActionKind::F, 0, 0}), -1);
  EXPECT_EQ(on_0.at({ActionKind::B, 1, 0}), 0) << "the first forward of rank 0, not the second";
  EXPECT_EQ(on_0.at({ActionKind::B, 1, 1}), 1);
  EXPECT_EQ(on_0.at({ActionKind::B, 1, 2}), 3);
  const std::map<Action, int> on_1 = last_awaited(make_schedule("1f1b", 2, 3), 1);
  EXPECT_EQ(on_1.at({ActionKind::F, 0, 1}), -1);
  EXPECT_EQ(on_1.at({ActionKind::F, 0, 2}), 1) << "rank 0 waits for a gradient first";
}

TEST(LastAwaited, KnowsEveryAction) {
  for (const std::string& name : schedule_names()) {
    const Schedule schedule = make_schedule(name, 3, 5, 2);
    std::size_t actions = 0;
    for (const Program& program : schedule.programs) actions += program.size();
    const std::map<Action, int> awaited = last_awaited(schedule, 1);
    EXPECT_EQ(awaited.size(), actions) << name;
    for (std::size_t i = 0; i < schedule.programs[1].size(); ++i)
      EXPECT_EQ(awaited.at(schedule.programs[1][i]), static_cast<int>(i) - 1) << name;
  }
  EXPECT_EQ(last_awaited(parse_schedule("schedule s microbatches 1\nchunks on ranks 0\nrank 0: 0B0 0F0\n"), 0).size(),
            0u);
}

}  // namespace
}  // namespace trireme::schedule
