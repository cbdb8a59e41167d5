#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/config/rules/rules.hpp"
#include "trireme/testing/config_helpers.hpp"
#include "trireme/testing/temp_folder.hpp"

namespace trireme::config {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// A model that was refused has no sizes: that is one error, not two.
TEST(ModelRules, ARefusedModelIsOneError) {
  const TempFolder folder;
  const std::string path = folder.path().string();
  const auto with_config = [&](const std::string& json) {
    std::ofstream(folder.path() / "config.json") << json;
    return std::pair(error_of("model.hf = '" + path + "'"), error_of("model.init = 'hf:" + path + "'"));
  };
  const auto [by_hf, by_init] = with_config(R"({"model_type": "llama", "hidden_size": 8, "mlp_bias": true})");
  EXPECT_EQ(by_hf, path + "/config.json: mlp_bias = true is not supported, only false\n  --> run.toml:1");
  EXPECT_EQ(by_init, by_hf);
  EXPECT_THAT(error_of("model.hf = '/no/such'"), AllOf(HasSubstr("/no/such"), Not(HasSubstr("errors"))));
  EXPECT_THAT(error_of("model.preset = 'nope'"),
              AllOf(HasSubstr("unknown preset \"nope\""), Not(HasSubstr("no model")), Not(HasSubstr("errors"))));
  EXPECT_THAT(error_of("model.name = 'llama3'\nmodel.flavor = '9B'"),
              AllOf(HasSubstr("is not a preset"), Not(HasSubstr("no model")), Not(HasSubstr("errors"))));

  const std::string no_sizes = "the config.json of model.hf = \"" + path + "\" has no sizes\n  --> ";
  const auto [empty_hf, empty_init] = with_config(R"({"model_type": "llama"})");
  EXPECT_THAT(empty_hf, HasSubstr(no_sizes + "run.toml:1"));
  EXPECT_THAT(empty_init, HasSubstr(no_sizes + "model.init = \"hf:" + path + "\""));
}

TEST(ModelRules, OneAtATime) {
  const std::string tiny = kTiny;
  const Told rows[] = {
      {"training.steps = 5",
       "no model: [model] has no preset, no hf and no sizes\n  --> run.toml\n  fix: set model.preset, for instance "
       "\"tiny-llama\", or the sizes themselves"},
      {"[model]\ndtype = 'float32'",
       "no model: [model] has no preset, no hf and no sizes\n  --> run.toml:2\n  fix: set model.preset, for instance "
       "\"tiny-llama\", or the sizes themselves"},
      {tiny + "model.vocab_size = 0",
       "model.vocab_size is not given\n  --> run.toml:1\n  fix: set it, or start from a model.preset"},
      {tiny + "model.init = 'banana'",
       "model.init = \"banana\"\n  --> run.toml:2  \"random\", \"hf:FOLDER\" or \"checkpoint:FOLDER\""},
      {tiny + "model.init = 'hf:'",
       "model.init = \"hf:\"\n  --> run.toml:2  \"random\", \"hf:FOLDER\" or \"checkpoint:FOLDER\""},
      {tiny + "model.head_dim = 0\nmodel.num_attention_heads = 3\nmodel.num_key_value_heads = 3",
       "hidden_size = 128 is not divisible by num_attention_heads = 3\n  --> run.toml:3  the width of a head must be "
       "whole\n  fix: change one of them, or set head_dim"},
      {tiny + "model.num_key_value_heads = 3",
       "num_attention_heads = 4 is not divisible by num_key_value_heads = 3\n  --> run.toml:2  each key-value head "
       "serves the same number of query heads"},
      {tiny + "model.head_dim = 33", "head_dim = 33 is odd\n  --> run.toml:2  RoPE turns pairs of elements"},
      {tiny + "model.rope_scaling.rope_type = 'yarn'",
       "rope_type = \"yarn\" without a factor\n  --> run.toml:2  each kind of scaling needs one\n  fix: set "
       "model.rope_scaling.factor, or leave rope_type out"},
      {tiny + "model.rope_scaling = {rope_type = 'llama3', factor = 8, high_freq_factor = 1}",
       "high_freq_factor = 1 is not above low_freq_factor = 1\n  --> run.toml:2  frequencies between the two are "
       "interpolated"},
      {tiny + "model.head_dim = 2\nmodel.rope_scaling = {rope_type = 'dynamic', factor = 2}",
       "head_dim = 2 with rope_type = \"dynamic\"\n  --> run.toml:2  its base is raised to head_dim / (head_dim - 2)"},
      {"model.preset = 'gpt2'\ntraining.seq_len = 2048",
       "seq_len = 2048 is longer than max_position_embeddings = 1024\n  --> run.toml:2  learned positions end there\n"
       "  fix: raise model.max_position_embeddings or shorten seq_len"},
      {"model.preset = 'gpt2'\n[[data]]\nseq_len = 2048\nsources = [{path='a'}]",
       "seq_len = 2048 is longer than max_position_embeddings = 1024\n  --> run.toml:3  learned positions end there\n"
       "  fix: raise model.max_position_embeddings or shorten seq_len"},
      {tiny + "model.hidden_size = 1000000000\nmodel.head_dim = 2",
       "the model has more than 1,000,000,000,000,000 parameters\n  --> run.toml:2\n  fix: look for a size with too "
       "many digits"},
      {tiny + "parallelism.tp = 4\nmodel.intermediate_size = 386",
       "intermediate_size = 386 is not divisible by parallelism.tp = 4\n  --> run.toml:3  columns per rank must be "
       "whole"},
      {tiny + "parallelism.ep = 2",
       "parallelism.ep = 2, but the model has no experts\n  --> run.toml:2\n  fix: set ep = 1"},
      {tiny + "model.num_local_experts = 4\nmodel.num_experts_per_tok = 5",
       "num_experts_per_tok = 5 of num_local_experts = 4\n  --> run.toml:3  a token cannot be routed to more "
       "experts than there are"},
      {tiny + "model.num_local_experts = 6\nparallelism.ep = 4",
       "num_local_experts = 6 is not divisible by parallelism.ep = 4\n  --> run.toml:3  experts per rank must be "
       "whole: "
       "ep ∈ {1, 2, 3, 6}"},
      {tiny + "model.num_local_experts = 2\nmodel.moe_intermediate_size = 99\nparallelism.tp = 2",
       "moe_intermediate_size = 99 is not divisible by expert_tp = 2\n  --> run.toml:3  columns per rank must be "
       "whole"},
  };
  for (const Told& row : rows) {
    const bool huge = row.toml.find("1000000000") != std::string::npos;
    const std::string told = error_of(row.toml, huge ? Flags{"--model.vocab_size=1000000000"} : Flags{});
    EXPECT_EQ(told, row.message) << row.toml;
  }
}

TEST(ModelRules, WhatIsAllowed) {
  for (const char* toml :
       {"model.num_key_value_heads = 2\nparallelism.tp = 4", "model.num_key_value_heads = 1\nparallelism.tp = 4",
        "model.num_attention_heads = 5\nmodel.num_key_value_heads = 5",  // head_dim is given
        "model.vocab_size = 509\nparallelism.tp = 4",                    // padded, never rejected
        "model.init = 'hf:folder'", "model.num_local_experts = 8\nparallelism.ep = 4\nparallelism.dp = 4",
        "model.num_local_experts = 3\nmodel.intermediate_size = 100\nparallelism.tp = 4"})
    EXPECT_EQ(error_of(std::string(kTiny) + toml), "no error") << toml;
  EXPECT_EQ(error_of("model.preset = 'gpt2'\nmodel.head_dim = 63"), "no error");
}

TEST(ModelRules, EveryMissingSizeIsNamed) {
  const std::string told = error_of("model.hidden_size = 64");
  for (const char* key : {"num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"})
    EXPECT_THAT(told, HasSubstr(std::string("run.toml:1  model.") + key + " is not given"));
}

TEST(Divisors, AreTheFirstTwelve) {
  EXPECT_EQ(divisors(12, any_divisor), "{1, 2, 3, 4, 6, 12}");
  EXPECT_EQ(divisors(12, one_divides_the_other, 3), "{1, 3, 6, 12}");
  EXPECT_EQ(divisors(1, any_divisor), "{1}");
  EXPECT_EQ(divisors(5040, any_divisor), "{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14}");
}

}  // namespace
}  // namespace trireme::config
