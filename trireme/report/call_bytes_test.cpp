#include "trireme/report/call_bytes.hpp"

#include <gtest/gtest.h>

namespace trireme::report {
namespace {

TracedCall call(const char* op, std::optional<std::int64_t> bytes) {
  return {.op = op, .group = {}, .what = {}, .bytes = bytes, .span = {}};
}

TEST(BusBytes, AreThoseOfNcclsTests) {
  EXPECT_EQ(bus_bytes(call("all_reduce", 800), 4), 1200);
  EXPECT_EQ(bus_bytes(call("reduce_scatter", 800), 4), 600);
  EXPECT_EQ(bus_bytes(call("all_gather", 200), 4), 600) << "of the input, a quarter of the whole";
  EXPECT_EQ(bus_bytes(call("all_to_all", 800), 4), 600);
  EXPECT_EQ(bus_bytes(call("broadcast", 800), 4), 800);
  EXPECT_EQ(bus_bytes(call("send", 800), 2), 800);
  EXPECT_FALSE(bus_bytes(call("barrier", std::nullopt), 4));
  EXPECT_FALSE(bus_bytes(call("all_reduce", 800), 1)) << "nothing travels";
  EXPECT_FALSE(bus_bytes(call("all_reduce", 800), 0)) << "the ranks are not known";
}

TEST(SentBytes, CountOnceForAll) {
  EXPECT_EQ(sent_bytes(call("all_reduce", 800), 4, false), 1200);
  EXPECT_EQ(sent_bytes(call("all_gather", 200), 4, false), 600);
  EXPECT_EQ(sent_bytes(call("broadcast", 800), 4, false), 0);
  EXPECT_EQ(sent_bytes(call("broadcast", 800), 4, true), 800);
  EXPECT_EQ(sent_bytes(call("gather", 200), 4, false), 200);
  EXPECT_EQ(sent_bytes(call("scatter", 200), 4, true), 600);
  EXPECT_EQ(sent_bytes(call("recv", 800), 2, false), 0);
  EXPECT_FALSE(sent_bytes(call("all_to_all", std::nullopt), 4, false));
}

}  // namespace
}  // namespace trireme::report
