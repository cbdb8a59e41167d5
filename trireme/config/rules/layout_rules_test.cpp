#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/config/rules/rules.hpp"
#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

struct Layout {
  std::string toml;
  int ranks;
  std::string message;
};

TEST(LayoutRules, OneAtATime) {
  const Layout rows[] = {
      {"parallelism.dp = 0", 0, "parallelism.dp = 0\n  --> run.toml:2\n  fix: at least 1, or -1: all remaining ranks"},
      {"parallelism.dp = 2", 1,
       "the layout needs 2 ranks, 1 was started\n  --> run.toml:2  [parallelism]  dp=2 tp=1 pp=1 cp=1          2 × 1 × "
       "1 "
       "× 1 = 2\n  launch: by hand\n  fix: start 2 ranks, or set dp = 1 (or dp = -1: all remaining ranks)"},
      {"parallelism.dp = 2", 4,
       "the layout needs 2 ranks, 4 were started\n  --> run.toml:2  [parallelism]  dp=2 tp=1 pp=1 cp=1          2 × 1 "
       "× 1 "
       "× 1 = 2\n  launch: by hand\n  fix: start 2 ranks, or set dp = 4 (or dp = -1: all remaining ranks)"},
      {"parallelism.dp = 1\nparallelism.tp = 4", 3,
       "the layout needs 4 ranks, 3 were started\n  --> run.toml:2  [parallelism]  dp=1 tp=4 pp=1 cp=1          1 × 4 "
       "× "
       "1 × 1 = 4\n  launch: by hand\n  fix: start 4 ranks, or lower tp, pp or cp: one replica takes 4"},
      {"[parallelism]\npp = 2\ntp = 2", 1,
       "one replica of the model needs 4 ranks, 1 was started\n  --> run.toml:3  [parallelism]  tp=2 pp=2 cp=1         "
       " "
       "2 × 2 × 1 = 4\n  launch: by hand\n  fix: start a multiple of 4 ranks, or lower tp, pp or cp"},
      {"parallelism.pp = 8", 0,
       "num_hidden_layers = 4 for 8 pipeline chunks (pp 8 × 1)\n  --> run.toml:2  each chunk needs a layer\n  fix: "
       "lower "
       "pp or virtual_stages"},
      {"parallelism.pp = 4\nparallelism.pp_schedule = 'zbv'", 0,
       "num_hidden_layers = 4 for 8 pipeline chunks (pp 4 × 2)\n  --> run.toml:2  each chunk needs a layer\n  fix: "
       "lower "
       "pp or virtual_stages"},
      {"parallelism.virtual_stages = 2", 0,
       "virtual_stages = 2 with pp_schedule = \"1f1b\"\n  --> run.toml:2  only interleaved-1f1b takes a number of "
       "chunks\n  fix: set pp_schedule = \"interleaved-1f1b\" or virtual_stages = 1"},
      {"parallelism.pp = 2\nparallelism.stages = [1, 2, 1]", 0,
       "stages lists 3 chunks, the pipeline has 2\n  --> run.toml:3  pp 2 × 1 chunks per rank"},
      {"parallelism.pp = 2\nparallelism.stages = [1, 2]", 0,
       "stages adds up to 3 layers, the model has 4\n  --> run.toml:3  each layer is in one chunk"},
      {"parallelism.dp = 4\nparallelism.replicate = 3", 0,
       "parallelism.dp = 4 is not divisible by replicate = 3\n  --> run.toml:3  dp = replicate × shard"},
      {"parallelism.zero_unit = '0'", 0,
       "zero_unit = \"0\"\n  --> run.toml:2  \"layer\", \"model\" or a number of layers"},
      {"parallelism.zero_unit = ''", 0,
       "zero_unit = \"\"\n  --> run.toml:2  \"layer\", \"model\" or a number of layers"},
      {"parallelism.order = 'tp-dp'\nparallelism.pp = 2", 0,
       "parallelism.order = \"tp-dp\": leaves out pp = 2; an axis left out must have degree 1\n  --> run.toml:2\n"
       "  fix: add pp to parallelism.order"},
      {"parallelism.order = 'tp-xp'", 0,
       "parallelism.order = \"tp-xp\": \"xp\" is not an axis\n  --> run.toml:2\n  fix: name each of tp, cp, dp and pp "
       "once, innermost first, as in \"tp-cp-dp-pp\""},
      {"parallelism.dp = 1000000\nparallelism.cp = 32", 0,
       "dp × tp × pp × cp is more than 16777216 ranks\n  --> run.toml:2"},
  };
  for (const Layout& row : rows)
    EXPECT_EQ(error_of(std::string(kTiny) + row.toml, {}, {.ranks = row.ranks, .how = row.ranks > 0 ? "by hand" : ""}),
              row.message)
        << row.toml;
}

TEST(LayoutRules, WhatIsAllowed) {
  for (const char* toml :
       {"parallelism.order = 'pp-dp-cp-tp'", "parallelism.pp = 2\nparallelism.stages = [1, 3]",
        "parallelism.pp = 2\nparallelism.pp_schedule = 'dualpipe-v'", "parallelism.zero_unit = '2'",
        "parallelism.zero_unit = 'model'", "parallelism.replicate = 2\nparallelism.dp = 4",
        "parallelism.pp = 2\nparallelism.virtual_stages = 2\nparallelism.pp_schedule = 'interleaved-1f1b'",
        "parallelism.replicate = 2", "parallelism.order = 'tp-dp'"})
    EXPECT_EQ(error_of(std::string(kTiny) + toml), "no error") << toml;
  EXPECT_EQ(error_of(std::string(kTiny) + "parallelism.tp = 2", {}, {.ranks = 6}), "no error");
}

/// expert_view checks whether ep and expert_tp fit; its error becomes a violation at parallelism.ep.
TEST(LayoutRules, ExpertsMustFitTheRanks) {
  const std::string moe = std::string(kTiny) + "model.num_local_experts = 8\nparallelism.dp = 2\n";
  EXPECT_EQ(error_of(moe + "parallelism.ep = 2"), "no error");
  EXPECT_THAT(error_of(moe + "parallelism.ep = 8"), ::testing::HasSubstr("run.toml:4"));
  EXPECT_NE(error_of(moe + "parallelism.expert_tp = 4"), "no error");
}

}  // namespace
}  // namespace trireme::config
