#include "trireme/base/edit_distance.hpp"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(EditDistance, CountsLettersThatChange) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("norm", "norm"), 0U);
  EXPECT_EQ(edit_distance("nrom", "norm"), 1U);  // two neighbours swapped
  EXPECT_EQ(edit_distance("nom", "norm"), 1U);
  EXPECT_EQ(edit_distance("norms", "norm"), 1U);
  EXPECT_EQ(edit_distance("form", "norm"), 1U);
  EXPECT_EQ(edit_distance("", "norm"), 4U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
}

}  // namespace
}  // namespace trireme
