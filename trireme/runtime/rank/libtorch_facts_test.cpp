#include "trireme/runtime/rank/libtorch_facts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(LibtorchFacts, AreThoseOfARealLibtorch) {
  const LibtorchFacts facts = libtorch_facts();
  EXPECT_THAT(facts.built_with, testing::MatchesRegex("2\\.[0-9]+\\.[0-9]+.*"));
  EXPECT_GE(facts.threads, 1);
  EXPECT_TRUE(facts.gloo);  // every Linux wheel has it, and everything on the CPU depends on it
  EXPECT_TRUE(facts.cuda || visible_gpus() == 0);
  EXPECT_EQ(facts.gpus.size(), static_cast<std::size_t>(visible_gpus()));
}

}  // namespace
}  // namespace trireme
