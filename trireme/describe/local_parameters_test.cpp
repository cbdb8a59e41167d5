#include "trireme/describe/local_parameters.hpp"

#include <string>

#include <gtest/gtest.h>

#include "trireme/describe/counts.hpp"
#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

ModelConfig preset_model(const std::string& preset, const Flags& flags = {}) {
  return load_good("model.preset = \"" + preset + "\"\n", flags).config.model;
}

TEST(LocalParameters, OfOneRankAreAll) {
  for (const char* preset : {"tiny-llama", "llama3-8b", "llama3.2-1b", "qwen3-0.6b"}) {
    const ModelConfig m = preset_model(preset);
    EXPECT_EQ(local_parameters(m, 1).total(), config::count_parameters(m).total()) << preset;
  }
  for (const char* preset : {"gpt2", "gpt2-xl", "gpt3-175b"}) {  // 50,257 rows of 50,304
    const ModelConfig m = preset_model(preset);
    EXPECT_EQ(local_parameters(m, 1).total(), config::count_parameters(m).total() + 47 * m.hidden_size) << preset;
  }
  const ModelConfig qwen2 = preset_model("llama3.2-1b", {"--model.model_type", "qwen2"}),
                    biased = preset_model("llama3.2-1b", {"--model.attention_bias"});
  EXPECT_EQ(local_parameters(qwen2, 1).total(), config::count_parameters(qwen2).total());
  EXPECT_EQ(local_parameters(biased, 1).total(), config::count_parameters(biased).total());
}

TEST(LocalParameters, AreCutOverTp) {
  const LocalParameters tiny = local_parameters(preset_model("tiny-llama"), 2);
  EXPECT_EQ(elements(tiny.embedding), 256 * 128);
  EXPECT_EQ(elements(tiny.layer), 128 + 128 * 3 * 64 + 64 * 128 + 128 + 2 * 128 * 192 + 192 * 128);
  EXPECT_EQ(elements(tiny.head), 128);  // tied: only the norm
  EXPECT_EQ(tiny.head_weight, 256 * 128);
  EXPECT_EQ(tiny.total(), elements(tiny.embedding) + 4 * elements(tiny.layer) + 128);

  // Biases of outputs, norms and positions are replicated, biases of sharded columns are sharded.
  const LocalParameters gpt2 = local_parameters(preset_model("gpt2"), 4);
  EXPECT_EQ(elements(gpt2.embedding), 12672 * 768 + 1024 * 768);
  EXPECT_EQ(elements(gpt2.layer),
            4 * 768 + (768 * 3 * 192 + 3 * 192) + (192 * 768 + 768) + (768 * 768 + 768) + (768 * 768 + 768));
  EXPECT_EQ(elements(gpt2.head), 2 * 768);
}

TEST(LocalParameters, PadTheVocabulary) {
  const ModelConfig m = preset_model("tiny-llama", {"--model.vocab_size", "513"});
  EXPECT_EQ(local_parameters(m, 1).head_weight, 640 * 128);
  EXPECT_EQ(local_parameters(m, 2).head_weight, 384 * 128);  // 257 rows of the vocabulary
  EXPECT_EQ(local_parameters(m, 4).head_weight, 256 * 128);  // 129
  EXPECT_EQ(config::count_parameters(m).total(), 918'656 + 128);
}

TEST(LocalParameters, RepeatKeyValueHeads) {
  const ModelConfig m = preset_model("llama3-8b");  // 32 heads of 128, 8 key-value heads
  const std::int64_t h = 4096, mlp = 3 * h * 14336 / 16, norms = 2 * h;
  EXPECT_EQ(elements(local_parameters(m, 16).layer), h * (2 + 2 * 1) * 128 + 2 * 128 * h + mlp + norms);
}

}  // namespace
}  // namespace trireme::config
