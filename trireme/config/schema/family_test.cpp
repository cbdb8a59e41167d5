#include "trireme/config/schema/family.hpp"

#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/config/schema/presets.hpp"
#include "trireme/config/translate/hf_config.hpp"
#include "trireme/config/translate/hf_config_write.hpp"
#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelConfig family_model(const std::string& family, bool attention_bias = false) {
  ModelConfig m;
  m.model_type = family;
  m.attention_bias = attention_bias;
  return m;
}

const FamilyInfo& row_of(const std::string& family) { return family_of(family_model(family)); }

TEST(Family, HasOneRowInTheOrderOfTheEnum) {
  std::set<std::string_view> names, architectures;
  for (std::size_t i = 0; i < families().size(); ++i) {
    const FamilyInfo& family = families()[i];
    EXPECT_EQ(static_cast<std::size_t>(family.id), i) << family.name;
    EXPECT_EQ(find_family(family.name), &family);
    EXPECT_EQ(&row_of(std::string(family.name)), &family);
    names.insert(family.name);
    architectures.insert(family.hf.architecture);
  }
  EXPECT_EQ(families().size(), static_cast<std::size_t>(Family::gemma2) + 1);
  EXPECT_EQ(names.size(), families().size());
  EXPECT_EQ(architectures.size(), families().size());
}

TEST(Family, NamesAreTheAllowedValues) {
  EXPECT_THAT(family_names(),
              ElementsAre("gpt2", "llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen3_moe", "gemma2"));
  EXPECT_EQ(all_family_names(), "gpt2, llama, mistral, qwen2, qwen3, mixtral, qwen3_moe, gemma2");
  Config config;
  std::vector<std::string> choices;
  for (const Field& field : fields(config))
    if (field.key == "model.model_type") choices = field.choices;
  EXPECT_EQ(choices, family_names());
  EXPECT_NE(find_family(config.model.model_type), nullptr) << "the default";
}

TEST(Family, UnknownIsRefused) {
  for (const char* name : {"gemma9", "", "Llama", "llama "}) EXPECT_EQ(find_family(name), nullptr) << name;
  EXPECT_EQ(
      message_of<ConfigError>([] { family_of(family_model("gemma9")); }),
      "model.model_type = \"gemma9\" is not one of: gpt2, llama, mistral, qwen2, qwen3, mixtral, qwen3_moe, gemma2");
  EXPECT_THROW(has_qkv_bias(family_model("gemma9")), ConfigError);
  EXPECT_THROW(has_out_bias(family_model("gemma9")), ConfigError);
}

/// As in the papers and transformers' modeling_*.py.
TEST(Family, LayersAreThePublishedOnes) {
  const FamilyInfo gpt2 = row_of("gpt2");
  EXPECT_EQ(gpt2.norm, NormKind::layer_norm);
  EXPECT_EQ(gpt2.positions, PositionKind::learned);
  EXPECT_EQ(gpt2.mlp, MlpKind::gelu);
  EXPECT_EQ(gpt2.default_mlp_ratio, 4);
  EXPECT_TRUE(gpt2.scaled_residual_init);
  for (const char* name : {"llama", "mistral", "qwen2", "qwen3", "mixtral", "qwen3_moe"}) {
    const FamilyInfo family = row_of(name);
    EXPECT_EQ(family.norm, NormKind::rms_norm) << name;
    EXPECT_EQ(family.positions, PositionKind::rope) << name;
    EXPECT_EQ(family.mlp, MlpKind::swiglu) << name;
    EXPECT_EQ(family.default_mlp_ratio, 0) << name;
    EXPECT_FALSE(family.scaled_residual_init) << name;
  }
  const FamilyInfo gemma2 = row_of("gemma2");
  EXPECT_EQ(gemma2.norm, NormKind::unit_rms_norm);
  EXPECT_EQ(gemma2.mlp, MlpKind::geglu);
  EXPECT_TRUE(gemma2.post_norms && gemma2.scaled_embedding && gemma2.hf.has_softcaps);
  for (const FamilyInfo& family : families())
    EXPECT_EQ(family.hf.experts != HfExperts::none, family.name == "mixtral" || family.name == "qwen3_moe")
        << family.name;
}

TEST(Family, BiasesOfAttention) {
  struct Row {
    const char* family;
    bool attention_bias, qkv, out;
  };
  const Row rows[] = {
      {"gpt2", false, true, true},   {"gpt2", true, true, true},    {"llama", false, false, false},
      {"llama", true, true, true},   {"mistral", true, true, true}, {"mistral", false, false, false},
      {"qwen2", false, true, false}, {"qwen2", true, true, false},  {"qwen3", false, false, false},
      {"qwen3", true, true, true},   {"mixtral", true, true, true}, {"mixtral", false, false, false},
  };
  for (const Row& row : rows) {
    const ModelConfig m = family_model(row.family, row.attention_bias);
    EXPECT_EQ(has_qkv_bias(m), row.qkv) << row.family << " " << row.attention_bias;
    EXPECT_EQ(has_out_bias(m), row.out) << row.family << " " << row.attention_bias;
  }
}

/// As in transformers' configuration_*.py.
TEST(Family, ClassesOfTransformers) {
  EXPECT_STREQ(row_of("gpt2").hf.architecture, "GPT2LMHeadModel");
  EXPECT_STREQ(row_of("qwen2").hf.architecture, "Qwen2ForCausalLM");
  std::vector<std::string> gpt2_names, attention_bias, mlp_bias, qk_norm, number, switched;
  for (const FamilyInfo& family : families()) {
    const auto add = [&](std::vector<std::string>& to, bool is_so) {
      if (is_so) to.emplace_back(family.name);
    };
    add(gpt2_names, family.hf.names == HfNames::gpt2);
    add(attention_bias, family.hf.reads_attention_bias);
    add(mlp_bias, family.hf.reads_mlp_bias);
    add(qk_norm, family.hf.has_qk_norm);
    add(number, family.hf.window == HfWindow::number);
    add(switched, family.hf.window == HfWindow::switched);
  }
  EXPECT_THAT(gpt2_names, ElementsAre("gpt2"));
  EXPECT_THAT(attention_bias, ElementsAre("llama", "qwen3", "qwen3_moe", "gemma2"));
  EXPECT_THAT(mlp_bias, ElementsAre("llama"));
  EXPECT_THAT(qk_norm, ElementsAre("qwen3", "qwen3_moe"));
  EXPECT_THAT(number, ElementsAre("mistral", "mixtral"));
  EXPECT_THAT(switched, ElementsAre("qwen2", "qwen3", "qwen3_moe"));
}

/// A new row also needs entries elsewhere: the defaults of its config.json, and how to write one.
TEST(Family, IsReadAndWritten) {
  for (const FamilyInfo& family : families()) {
    const std::string name(family.name), json = "{\"model_type\": \"" + name + "\"}";
    EXPECT_FALSE(parse_hf_config("config.json", json).settings.empty()) << name;
    ModelConfig m = family_model(name);
    m.hidden_size = m.intermediate_size = 64;
    m.num_attention_heads = m.num_key_value_heads = 4;
    m.head_dim = 16;
    m.qk_norm = family.hf.has_qk_norm;
    m.moe_intermediate_size = m.intermediate_size;
    EXPECT_THAT(hf_config_json(m, "float32"), HasSubstr("\"" + std::string(family.hf.architecture) + "\"")) << name;
  }
}

TEST(Family, WindowsAlternate) {
  ModelConfig m = family_model("gemma2");
  m.sliding_window = 16;
  const auto windows = [&] {
    std::vector<std::int64_t> out;
    for (std::int64_t i = 0; i < 4; ++i) out.push_back(window_of_layer(m, i));
    return out;
  };
  EXPECT_THAT(windows(), ElementsAre(16, 16, 16, 16));
  m.sliding_window_pattern = 2;
  EXPECT_THAT(windows(), ElementsAre(16, 0, 16, 0));
  m.sliding_window_pattern = 3;
  EXPECT_THAT(windows(), ElementsAre(16, 16, 0, 16));
}

TEST(Family, OfEveryPresetIsKnown) {
  for (const std::string& preset : preset_names())
    EXPECT_NE(find_family(find_preset(preset)->model_type), nullptr) << preset;
}

}  // namespace
}  // namespace trireme::config
