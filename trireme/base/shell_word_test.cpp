#include "trireme/base/shell_word.hpp"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(ShellWord, IsReadBackAsItIs) {
  EXPECT_EQ(shell_word("runs/tiny-20261117-%layout"), "runs/tiny-20261117-%layout");
  EXPECT_EQ(shell_word("--a.b=c,d:e@f+g"), "--a.b=c,d:e@f+g");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word("[6, 7]"), "'[6, 7]'");
  EXPECT_EQ(shell_word("it's $HOME"), "'it'\\''s $HOME'");
  EXPECT_EQ(shell_word("grün"), "'grün'");
}

}  // namespace
}  // namespace trireme
