#include "trireme/base/listed.hpp"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(Listed, TheFirstFewAndHowManyMore) {
  EXPECT_EQ(listed({}), "");
  EXPECT_EQ(listed({"a", "b"}), "\n  a\n  b");
  EXPECT_EQ(listed(std::vector<std::string>(10, "x")), "\n  x\n  x\n  x\n  x\n  x\n  x\n  x\n  x\n  and 2 more");
}

}  // namespace
}  // namespace trireme
