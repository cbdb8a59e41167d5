#include "trireme/config/translate/translations.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

/// "key = value; ...", or the error.
std::string translated(Translation translation, Value value, const Config& so_far = {}) {
  try {
    std::string out;
    for (const Setting& s : translation({"foreign", std::move(value), {}}, "ours", so_far))
      out += (out.empty() ? "" : "; ") + s.path + " = " + str(s.value);
    return out;
  } catch (const ConfigError& e) {
    return e.what();
  }
}

TEST(Translations, Values) {
  using namespace translations;
  struct Row {
    Translation translation;
    Value value;
    std::string result;
  };
  const Row rows[] = {
      {same, whole(5), "ours = 5"},
      {same, {Nothing{}}, ""},
      {as_lower, {"AdamW"}, "ours = \"adamw\""},
      {as_truth, raw(""), "ours = true"},
      {as_truth, {"True"}, "ours = true"},
      {as_truth, whole(0), "ours = false"},
      {as_truth, {"maybe"}, "foreign = \"maybe\" is not true or false"},
      {not_of, raw("false"), "ours = true"},
      {minutes, raw("1.5"), "ours = 90.0"},
      {minutes, {"soon"}, "foreign = \"soon\" is not a number"},
      {minutes, raw("inf"), "foreign = inf is not a number"},
      {power_of_two, whole(16), "ours = 65536.0"},
      {elements_as_mb, whole(25'000'000), "ours = 100.0"},
      {elements_as_mb, {"many"}, "foreign = \"many\" is not a number"},
      {bfloat16_if_true, {true}, "ours = \"bfloat16\""},
      {bfloat16_if_true, {false}, ""},
      {selective_if_true, raw(""), "ours = \"selective\""},
      {one_if_true, {true}, "ours = 1"},
      {three_if_true, {true}, "ours = 3"},
      {dtype, {"BF16"}, "ours = \"bfloat16\""},
      {dtype, {"torch.float32"}, "ours = \"float32\""},
      {tp_mode, {"reduce_scatter"}, "ours = true"},
      {tp_mode, {"other"}, "foreign = \"other\" has no counterpart here (known: all_reduce, reduce_scatter)"},
      {schedule, {"DualPipeV"}, "ours = \"dualpipe-v\""},
      {megatron_decay, {"inverse-square-root"}, "ours = \"inverse-sqrt\""},
      {deepspeed_scheduler, {"WarmupCosineLR"}, "ours = \"cosine\""},
      {adam_is_adamw, {"Adam"}, "ours = \"adamw\""},
      {adam_is_adamw, {"lamb"}, "foreign = \"lamb\" has no counterpart here (known: adam, adamw, sgd)"},
      {hf_fsdp, {"full_shard auto_wrap"}, "ours = 3"},
      {hf_fsdp, {Values{{"shard_grad_op"}, {"auto_wrap"}}}, "ours = 2"},
      {hf_fsdp, {Values{}}, "ours = 0"},
      {hf_fsdp, {true}, "ours = 3"},
      {hf_fsdp,
       {"hybrid_shard"},
       "foreign = \"hybrid_shard\" has no counterpart here (known: \"\", full_shard, no_shard, shard_grad_op)"},
      {resume, {"a/b"}, "ours = \"a/b\""},
      {resume, {true}, "ours = \"auto\""},
      {resume, {Nothing{}}, ""},
      {resume, whole(400), "foreign = 400 has no counterpart here: only -1 and a checkpoint's folder have"},
      {memory_snapshot, {false}, "ours = \"never\""},
      {hidden_dropout, {0.1}, "ours = 0.1; model.embd_pdrop = 0.1"},
      {virtual_stages, whole(1), "ours = 1"},
      {virtual_stages, raw("2"), "ours = 2; parallelism.pp_schedule = \"interleaved-1f1b\""},
      {virtual_stages, {2.5}, "foreign = 2.5 is not a whole number"},
      {weights_and_paths, raw("a"), "ours.0.path = \"a\""},
      {weights_and_paths, raw("a b"), "ours.0.path = \"a\"; ours.1.path = \"b\""},
      {weights_and_paths, raw("1 a"), "ours.0.weight = 1.0; ours.0.path = \"a\""},
      {weights_and_paths, {Values{whole(1), {"a"}}}, "ours.0.weight = 1.0; ours.0.path = \"a\""},
      {weights_and_paths, raw("1 a 2"), "foreign = 1 a 2: a weight for each path"},
      {weights_and_paths, raw("1 a b c"), "foreign: b is not a weight"},
      {folders, {"a"}, "ours.0.path = \"a\""},
      {folders, {Values{{"a"}, {"b"}}}, "ours.0.path = \"a\"; ours.1.path = \"b\""},
      {weights, {Values{{0.5}, whole(2)}}, "ours.0.weight = 0.5; ours.1.weight = 2"},
      {weights, {Nothing{}}, ""},
      {weights, {0.5}, "foreign = 0.5 is not a list of weights"},
      {profile, raw(""), "ours = [10, 11]"},
      {first_step_if_true, {true}, "ours = [1]"},
      {ratio_of_steps, {0.5}, "ours = 500.0"},
      {ratio_of_steps, {1.5}, "foreign = 1.5 is not between 0 and 1"},
      {ratio_of_steps, {-0.5}, "foreign = -0.5 is not between 0 and 1"},
      {factor_of_lr, whole(1), "ours = 3e-04"},
      {tokens_as_sequences, whole(2048), "ours = 2"},
      {tokens_as_sequences, whole(2000),
       "foreign = 2000 is not a whole number of sequences of training.seq_len = 1024"},
      {shard_degree, whole(4), "ours = 4"},
      {shard_degree, {1e14}, "foreign = 100000000000000 is too large"},
      {fsdp_if_sharded, whole(1), "ours = 0"},
      {dataset_unless_path, {"c4"}, "ours = \"c4\""},
      {folder_unless_given, {"tb"}, "metrics.tensorboard = true; ours = \"tb\""},
      {layers_of_virtual_stage, whole(0), "foreign = 0: 0 layers are no whole number of chunks on 1 pipeline ranks"},
      {first_profiled, whole(5), ""},
      {last_profiled, whole(5), ""},
  };
  for (const Row& row : rows) EXPECT_EQ(translated(row.translation, row.value), row.result);
}

TEST(Translations, ThatReadOtherSettings) {
  using namespace translations;
  Config c;
  c.optimizer.betas = {0.1, 0.2};
  EXPECT_EQ(translated(beta1, {0.5}, c), "ours = [0.5, 0.2]");
  EXPECT_EQ(translated(beta2, {0.5}, c), "ours = [0.1, 0.5]");
  c.optimizer.betas = {};
  EXPECT_EQ(translated(beta2, {0.5}, c), "ours = [0.0, 0.5]");
  c.parallelism.replicate = 4;
  EXPECT_EQ(translated(shard_degree, whole(2), c), "ours = 8");
  EXPECT_EQ(translated(shard_degree, whole(-1), c), "ours = -1");
  c.data = {{.sources = {{.path = "x"}}}};
  EXPECT_EQ(translated(dataset_unless_path, {"c4"}, c), "");
  c.run.dir = "elsewhere";
  EXPECT_EQ(translated(folder_unless_given, {"tb"}, c), "metrics.tensorboard = true");
  c.profiler.steps = {10, 11};
  EXPECT_EQ(translated(first_profiled, whole(9), c), "ours = [9, 10, 11]");
  EXPECT_EQ(translated(first_profiled, whole(20), c), "ours = [20]");
  EXPECT_EQ(translated(last_profiled, whole(14), c), "ours = [10, 11, 12, 13]");
  EXPECT_EQ(translated(last_profiled, whole(5), c), "ours = [4]");
  EXPECT_EQ(translated(last_profiled, whole(5000), c),
            "foreign = 5000: steps 10 to 5000 are more than 1000 to profile");
  EXPECT_EQ(translated(nanotron_z_loss, {true}, c), "ours = 1e-04");
  EXPECT_EQ(translated(nanotron_z_loss, {false}, c), "ours = 0.0");
  EXPECT_EQ(translated(if_positive, {1e-5}, c), "");
  c.training.z_loss_coef = 1e-4;
  EXPECT_EQ(translated(if_positive, {1e-5}, c), "ours = 1e-05");
  c.model.num_hidden_layers = 24;
  c.parallelism.pp = 4;
  EXPECT_EQ(translated(layers_of_virtual_stage, whole(6), c), "ours = 1");
  EXPECT_EQ(translated(layers_of_virtual_stage, whole(5), c),
            "foreign = 5: 24 layers are no whole number of chunks on 4 pipeline ranks");
}

TEST(Refines, OnlyPartsOfAValue) {
  using namespace translations;
  EXPECT_TRUE(refines(beta1));
  EXPECT_TRUE(refines(last_profiled));
  EXPECT_FALSE(refines(same));
  EXPECT_FALSE(refines(ratio_of_steps));
}

TEST(WordsOf, SwitchesTakeNoneAndPathsTakeMany) {
  using namespace translations;
  EXPECT_EQ(words_of(as_truth), FlagWords::none);
  EXPECT_EQ(words_of(bfloat16_if_true), FlagWords::none);
  EXPECT_EQ(words_of(profile), FlagWords::none);
  EXPECT_EQ(words_of(weights_and_paths), FlagWords::many);
  EXPECT_EQ(words_of(same), FlagWords::one);
  EXPECT_EQ(words_of(tp_mode), FlagWords::one);
}

}  // namespace
}  // namespace trireme::config
