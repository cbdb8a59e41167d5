#include "trireme/runtime/environment/nodelist.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string nodelist_error(const std::string& list) {
  return message_of<ConfigError>([&] { expand_nodelist(list); });
}
std::string tasks_error(const std::string& list) {
  return message_of<ConfigError>([&] { expand_tasks_per_node(list); });
}

TEST(Nodelist, ExpandsWhatSlurmWrites) {
  EXPECT_THAT(expand_nodelist("host"), ElementsAre("host"));
  EXPECT_THAT(expand_nodelist("b,a"), ElementsAre("b", "a"));
  EXPECT_THAT(expand_nodelist("gnode[10,20-22]"), ElementsAre("gnode10", "gnode20", "gnode21", "gnode22"));
  EXPECT_THAT(expand_nodelist("a[1-2],login,b[7]"), ElementsAre("a1", "a2", "login", "b7"));
  EXPECT_THAT(expand_nodelist("n[1-2]-ib"), ElementsAre("n1-ib", "n2-ib"));
  EXPECT_THAT(expand_nodelist("r[1-2]n[1-2]"), ElementsAre("r1n1", "r1n2", "r2n1", "r2n2"));
  EXPECT_THAT(expand_nodelist("ip-10-0-0-[1,3].ec2"), ElementsAre("ip-10-0-0-1.ec2", "ip-10-0-0-3.ec2"));
}

TEST(Nodelist, KeepsTheZerosOfARange) {
  EXPECT_THAT(expand_nodelist("n[001-003]"), ElementsAre("n001", "n002", "n003"));
  EXPECT_THAT(expand_nodelist("n[08-11]"), ElementsAre("n08", "n09", "n10", "n11"));
  EXPECT_THAT(expand_nodelist("n[9-11]"), ElementsAre("n9", "n10", "n11"));
  EXPECT_THAT(expand_nodelist("n[099-101,7]"), ElementsAre("n099", "n100", "n101", "n7"));
}

TEST(Nodelist, TellsWhereAListIsWrong) {
  EXPECT_EQ(nodelist_error("n[1-2"), "nodelist \"n[1-2\": at character 6: expected ']' before the end");
  EXPECT_THAT(nodelist_error("n[1-2x]"), HasSubstr("at character 6: expected ']'"));
  EXPECT_THAT(nodelist_error("n[]"), HasSubstr("at character 3: expected a number"));
  EXPECT_THAT(nodelist_error("n[1,]"), HasSubstr("at character 5: expected a number"));
  EXPECT_THAT(nodelist_error("n[5-3]"), HasSubstr("the range 5-3 runs backwards"));
  EXPECT_THAT(nodelist_error(""), HasSubstr("at character 1: expected a host name"));
  EXPECT_THAT(nodelist_error("a,,b"), HasSubstr("at character 3: expected a host name"));
  EXPECT_THAT(nodelist_error("a,"), HasSubstr("expected a host name"));
  EXPECT_THAT(nodelist_error("a]b"), HasSubstr("at character 2: did not expect ']'"));
  EXPECT_THAT(nodelist_error("a b"), HasSubstr("did not expect ' '"));
  EXPECT_THAT(nodelist_error("n[99999999999999999999]"), HasSubstr("a number of 20 digits is too long"));
}

TEST(Nodelist, RefusesToFillTheMemory) {
  EXPECT_EQ(expand_nodelist("n[1-65536]").size(), 65'536u);
  EXPECT_THAT(nodelist_error("n[1-65537]"), HasSubstr("more than 65536 hosts"));
  EXPECT_THAT(nodelist_error("n[1-999999999]"), HasSubstr("more than 65536 hosts"));
  EXPECT_THAT(nodelist_error("n[1-300]m[1-300]"), HasSubstr("more than 65536 hosts"));
  EXPECT_THAT(nodelist_error("n[1-40000],m[1-40000]"), HasSubstr("more than 65536 hosts"));
  EXPECT_THAT(nodelist_error(std::string(100'000, 'n') + "[1-60000]"), HasSubstr("at most 255 characters"));
  EXPECT_THAT(nodelist_error("n[" + std::string(100'000, '0') + "-60000]"), HasSubstr("too long"));
}

TEST(TasksPerNode, ExpandsWhatSlurmWrites) {
  EXPECT_THAT(expand_tasks_per_node("4"), ElementsAre(4));
  EXPECT_THAT(expand_tasks_per_node("4(x2),3"), ElementsAre(4, 4, 3));
  EXPECT_THAT(expand_tasks_per_node("1,8(x3)"), ElementsAre(1, 8, 8, 8));
}

TEST(TasksPerNode, TellsWhereAListIsWrong) {
  EXPECT_EQ(tasks_error("4(2)"), "tasks per node \"4(2)\": at character 3: expected 'x'");
  EXPECT_THAT(tasks_error(""), HasSubstr("expected a number"));
  EXPECT_THAT(tasks_error("-4"), HasSubstr("expected a number"));
  EXPECT_THAT(tasks_error("4x"), HasSubstr("did not expect 'x'"));
  EXPECT_THAT(tasks_error("0"), HasSubstr("at least one task"));
  EXPECT_THAT(tasks_error("4(x0)"), HasSubstr("repeated 0 times"));
  EXPECT_THAT(tasks_error("1(x65537)"), HasSubstr("more than 65536 hosts"));
}

}  // namespace
}  // namespace trireme
