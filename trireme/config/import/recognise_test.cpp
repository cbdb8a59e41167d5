#include "trireme/config/import/recognise.hpp"

#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::config {
namespace {

TEST(Recognise, ByEndingAndWords) {
  EXPECT_EQ(recognise("x.yaml", ""), Framework::nanotron);
  EXPECT_EQ(recognise("x.yml", ""), Framework::nanotron);
  EXPECT_EQ(recognise("x.toml", ""), Framework::torchtitan);
  EXPECT_EQ(recognise("x.json", R"({"model_type": "llama"})"), Framework::hf_config);
  EXPECT_EQ(recognise("x.json", R"({"zero_optimization": {"stage": 1}})"), Framework::deepspeed);
  EXPECT_EQ(recognise("x.json", R"({"train_micro_batch_size_per_gpu": 1})"), Framework::deepspeed);
  EXPECT_EQ(recognise("x.json", R"({"output_dir": "x"})"), Framework::hf_trainer);
  EXPECT_EQ(recognise("x.sh", "train --bf16"), Framework::megatron);
  EXPECT_EQ(recognise("a.b/train", "train --bf16"), Framework::megatron);
  for (const auto& [file, contents] :
       std::vector<std::pair<std::string, std::string>>{{"x.json", "{}"}, {"x.txt", "hello"}, {"x", ""}})
    EXPECT_EQ(message_of<ConfigError>([&] { recognise(file, contents); }),
              file +
                  ": config format not recognized\n  fix: name it: --from nanotron | torchtitan | megatron | "
                  "deepspeed | trainer | hf");
}

TEST(FrameworkByName, IsTheWordOfFrom) {
  EXPECT_EQ(framework_by_name("nanotron"), Framework::nanotron);
  EXPECT_EQ(framework_by_name("trainer"), Framework::hf_trainer);
  EXPECT_EQ(framework_by_name("hf"), Framework::hf_config);
  EXPECT_FALSE(framework_by_name("keras").has_value());
}

}  // namespace
}  // namespace trireme::config
