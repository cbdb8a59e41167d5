#include "trireme/base/with_fix.hpp"

#include <gtest/gtest.h>

namespace trireme {
namespace {

template <class E>
std::string message(const std::string& what) {
  try {
    with_fix("mend it", [&]() -> int { throw E(what); });
  } catch (const E& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST(WithFix, EveryErrorHasOne) {
  EXPECT_EQ(with_fix("mend it", [] { return 3; }), 3);
  EXPECT_EQ(message<CheckpointError>("bad"), "bad\n  fix: mend it");
  EXPECT_EQ(message<DataError>("bad"), "bad\n  fix: mend it");
  EXPECT_EQ(message<ConfigError>("bad"), "bad\n  fix: mend it");
  EXPECT_EQ(message<SecurityError>("bad"), "bad\n  fix: mend it");
  EXPECT_EQ(message<CheckpointError>("bad\n  fix: as it says"), "bad\n  fix: as it says");
  EXPECT_EQ(message<InternalError>("ours"), "ours");
}

}  // namespace
}  // namespace trireme
