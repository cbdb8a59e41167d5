#include "trireme/data/tokens/lanes.hpp"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/philox.hpp"

namespace trireme::data {
namespace {

TEST(Lanes, AreThePlainLoopsForEveryLength) {
  const RandomStream dice(6, "lanes test");
  for (std::size_t n = 0; n < 80; ++n) {
    std::vector<std::uint32_t> tokens(n), wide(n);
    std::vector<std::uint16_t> halves(n);
    for (std::size_t i = 0; i < n; ++i) {
      tokens[i] = static_cast<std::uint32_t>(dice.bits(n * 100 + i));
      halves[i] = static_cast<std::uint16_t>(tokens[i]);
    }
    EXPECT_EQ(largest(tokens), n == 0 ? 0 : *std::ranges::max_element(tokens));
    widen(halves, wide.data());
    EXPECT_TRUE(std::ranges::equal(wide, halves));
    std::vector<std::uint16_t> again(n);
    narrow(tokens, again.data());
    EXPECT_EQ(again, halves);
    for (std::size_t i = 0; i < n; ++i) {  // at any position
      std::vector<std::uint32_t> one(n, 5);
      one[i] = 0x80000000;
      EXPECT_EQ(largest(one), 0x80000000);
    }
  }
}

}  // namespace
}  // namespace trireme::data
