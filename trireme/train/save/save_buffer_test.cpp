#include "trireme/train/save/save_buffer.hpp"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(SaveBuffer, IsAsLargeAsTheStateIfTheHostHasIt) {
  const SaveBuffer buffer = save_buffer({}, 1e6, 2);
  EXPECT_GE(buffer.bytes, 1e6);
  EXPECT_EQ(buffer.warning, "");
  EXPECT_NE(save_buffer({}, 1e18, 1).warning, "") << "no host has so much";
}

TEST(SaveBuffer, OneThatIsTooSmallIsTold) {
  Config config;
  config.checkpoint.buffer_mb = 0.5;
  const SaveBuffer buffer = save_buffer(config, 1e6, 1);
  EXPECT_EQ(buffer.bytes, 0.5e6);
  EXPECT_EQ(buffer.warning,
            "saves in the background have 488 KiB of memory per rank (checkpoint.buffer_mb), and the state of a rank "
            "has 977 KiB: after each save the next update waits for the disk");
  EXPECT_EQ(save_buffer(config, 0.4e6, 1).warning, "");
  config.checkpoint.async = false;
  EXPECT_EQ(save_buffer(config, 1e6, 1).warning, "") << "every save makes training wait";
}

}  // namespace
}  // namespace trireme
