#include "trireme/train/run/changes_since.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

checkpoint::Manifest saved_with() {
  checkpoint::Manifest manifest;
  manifest.config = {{"model.hidden_size", "32"},       {"model.init", "\"random\""}, {"run.seed", "42"},
                     {"optimizer.name", "\"adamw\""},   {"optimizer.lr", "0.1"},      {"parallelism.tp", "1"},
                     {"data.0.sources.0.path", "\"a\""}};
  manifest.training.data = {
      {"stage 1", "16 tokens"}, {"stage 1 source 1", "x"}, {"stage 2", "8 tokens"}, {"tokenizer", "t"}};
  manifest.training.samples_consumed = {100};  // the second stage has not begun
  return manifest;
}

Changes changed_to(const KeyValues& config, const KeyValues& data, const std::vector<std::string>& accepted = {}) {
  const checkpoint::Manifest manifest = saved_with();
  KeyValues config_now = manifest.config, data_now = manifest.training.data;
  for (const auto& [key, value] : config) config_now[key] = value;
  for (const auto& [key, value] : data) data_now[key] = value;
  return changes_since(manifest, config_now, data_now, accepted);
}

TEST(ChangesSince, WhatWouldBeAnotherRunIsRefused) {
  EXPECT_THAT(changed_to({}, {}).refused, IsEmpty());
  EXPECT_THAT(changed_to({{"model.hidden_size", "48"}, {"run.seed", "7"}}, {}).refused,
              ElementsAre("model.hidden_size: 32 in the checkpoint, 48 now", "run.seed: 42 in the checkpoint, 7 now"));
  EXPECT_THAT(changed_to({}, {{"stage 1 source 1", "y"}}).refused,
              ElementsAre("stage 1 source 1: x in the checkpoint, y now"));
  EXPECT_THAT(changed_to({}, {{"tokenizer", "u"}}, {"data"}).refused,
              ElementsAre("tokenizer: t in the checkpoint, u now"));
  EXPECT_THAT(changed_to({}, {{"stage 1 source 2", "y"}}).refused,
              ElementsAre("stage 1 source 2: none in the checkpoint, y now"));
}

TEST(ChangesSince, OnlyWhatWasRefusedCanBeAccepted) {
  EXPECT_THAT(changed_to({{"run.seed", "7"}}, {{"stage 1", "8 tokens"}, {"stage 1 source 1", "y"}}).refused_kinds,
              ElementsAre("seed", "data"));
  EXPECT_THAT(changed_to({{"run.seed", "7"}, {"model.hidden_size", "48"}}, {}, {"seed"}).refused_kinds,
              ElementsAre("model"));
}

TEST(ChangesSince, TheRestIsNoted) {
  const Changes changes = changed_to({{"optimizer.lr", "0.2"},
                                      {"parallelism.tp", "2"},
                                      {"model.init", "\"hf:x\""},
                                      {"data.0.sources.0.path", "\"elsewhere\""},
                                      {"data.1.seq_len", "32"}},
                                     {{"stage 2", "32 tokens"}});
  EXPECT_THAT(changes.refused, IsEmpty());
  EXPECT_THAT(changes.noted, ElementsAre("data.1.seq_len: none in the checkpoint, 32 now",
                                         "model.init: \"random\" in the checkpoint, \"hf:x\" now",
                                         "optimizer.lr: 0.1 in the checkpoint, 0.2 now"));
  EXPECT_FALSE(changes.new_data || changes.new_optimizer);
}

TEST(ChangesSince, WhatIsAcceptedBeginsAnew) {
  const Changes changes = changed_to({{"optimizer.name", "\"sgd\""}}, {{"stage 1", "8 tokens"}}, {"data", "optimizer"});
  EXPECT_THAT(changes.refused, IsEmpty());
  EXPECT_EQ(changes.noted.size(), 2u);
  EXPECT_TRUE(changes.new_data && changes.new_optimizer);
}

TEST(IsSameRun, OnlyWhatHasNoEffectMayDiffer) {
  const KeyValues then = saved_with().config;
  const auto same_with = [&](const std::string& key, const std::string& value) {
    KeyValues now = then;
    now[key] = value;
    return is_same_run(then, now);
  };
  EXPECT_TRUE(same_with("parallelism.tp", "4"));
  EXPECT_TRUE(same_with("metrics.interval", "4"));
  EXPECT_FALSE(same_with("optimizer.lr", "4"));
  EXPECT_FALSE(same_with("training.steps", "4"));
  EXPECT_FALSE(same_with("data.0.sources.0.path", "\"b\""));
  EXPECT_TRUE(same_with("precision.matmul", "\"auto\"")) << "a key that is newer than the checkpoint, at its default";
  EXPECT_FALSE(same_with("precision.matmul", "\"fp8\""));
}

}  // namespace
}  // namespace trireme
