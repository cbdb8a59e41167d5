#include "trireme/config/import/hf_config_compare.hpp"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/config/schema/presets.hpp"
#include "trireme/config/translate/hf_config_write.hpp"
#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ModelConfig derived_preset(const char* name) { return load_good(text("model.preset = '", name, "'")).config.model; }

TEST(HfConfigDifferences, WhatTheWeightsComputeIsNamedWithBothValues) {
  const TempFolder folder;
  ModelConfig model = derived_preset("tiny-llama");
  EXPECT_THAT(hf_config_differences(folder.path(), model), IsEmpty()) << "no config.json";
  std::ofstream(folder / "config.json") << hf_config_json(model, "float32");
  EXPECT_THAT(hf_config_differences(folder.path(), model), IsEmpty());
  model.norm_eps = 1e-6;
  model.rope_theta = 5e5;
  EXPECT_THAT(hf_config_differences(folder.path(), model),
              ElementsAre("norm_eps = 1e-05 (the run's: 1e-06)", "rope_theta = 10000.0 (the run's: 5e+05)"));
  model = derived_preset("tiny-llama");
  model.num_attention_heads = model.num_key_value_heads = 8;  // the same shapes
  model.head_dim = 16;
  EXPECT_THAT(hf_config_differences(folder.path(), model),
              ElementsAre("num_attention_heads = 4 (the run's: 8)", "num_key_value_heads = 4 (the run's: 8)",
                          "head_dim = 32 (the run's: 16)"));
}

TEST(HfConfigDifferences, WhatARunMayChooseIsNotTold) {
  const TempFolder folder;
  ModelConfig model = derived_preset("tiny-llama");
  std::ofstream(folder / "config.json") << hf_config_json(model, "float32");
  model.dtype = "bfloat16";
  model.attention_dropout = model.resid_pdrop = 0.1;
  model.initializer_range = 0.5;
  model.max_position_embeddings = 4096;
  model.rope_scaling.factor = 7;  // plain RoPE has none
  EXPECT_THAT(hf_config_differences(folder.path(), model), IsEmpty());
  model.rope_scaling.rope_type = "dynamic";
  EXPECT_THAT(hf_config_differences(folder.path(), model), testing::Contains(HasSubstr("rope_type")));
}

TEST(HfConfigDifferences, AnotherKindOfConfigIsTold) {
  const TempFolder folder;
  std::ofstream(folder / "config.json") << R"({"model_type": "t5"})";
  EXPECT_THAT(hf_config_differences(folder.path(), derived_preset("tiny-llama")),
              ElementsAre(HasSubstr("model_type = \"t5\" is not one of the supported families")));
}

}  // namespace
}  // namespace trireme::config
