#include "trireme/comm/held_parts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme {
namespace {

using PartsOfRanks = std::vector<std::vector<HeldPart>>;

TEST(HeldParts, NameTheRankThatIsNotAsMost) {
  const HeldPart good{"a.weight (model) [0:4]", "11"}, bad{"a.weight (model) [0:4]", "22"},
      other{"b (model) [0:2]", "33"};
  EXPECT_EQ(differences_of_replicas(PartsOfRanks{{good, other}, {good}, {good}}), "");
  EXPECT_EQ(differences_of_replicas(PartsOfRanks{{good}, {good, other}, {bad}}),
            "replicas differ in 1 tensor: rank 2 differs from the majority\n  a.weight (model) [0:4]: rank 2, not as "
            "ranks 0 and 1");
  EXPECT_THAT(differences_of_replicas(PartsOfRanks{{good}, {bad}}),
              testing::HasSubstr("rank 0, not as rank 1; none of them is in the majority"));
  EXPECT_THAT(differences_of_replicas(PartsOfRanks{{good}, {bad}, {good}}, {1, 3, 5}),
              testing::HasSubstr("rank 3, not as ranks 1 and 5"))
      << "the ranks of a group";
}

TEST(HeldParts, AreTheSameAfterATrip) {
  const std::vector<HeldPart> parts{{"a.weight (model) [0:4]", "11"}, {"b", "22"}},
      back = held_parts_in(lines_of(parts));
  ASSERT_EQ(back.size(), 2U);
  EXPECT_EQ(back[0].what, parts[0].what);
  EXPECT_EQ(back[1].hash, "22");
  EXPECT_TRUE(held_parts_in("").empty());
}

}  // namespace
}  // namespace trireme
