#include "trireme/inference/generator.hpp"

#include <cstring>

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/nn/init_scope.hpp"
#include "trireme/nn/layer.hpp"
#include "trireme/testing/nn_helpers.hpp"

namespace trireme {
namespace {

/// A small model of a family, with weights that are a function of their names.
class SmallModel final : public checkpoint::ModelSource {
 public:
  explicit SmallModel(const std::string& family) {
    model_.model_type = family;
    model_.vocab_size = 67;
    model_.hidden_size = 32;
    model_.num_hidden_layers = 3;
    model_.num_attention_heads = 4;
    model_.num_key_value_heads = family == "gpt2" ? 4 : 2;
    model_.head_dim = 8;
    model_.intermediate_size = 48;
    model_.max_position_embeddings = 40;
    if (family == "gpt2") model_.hidden_act = "gelu_new";
    if (family == "mistral") model_.sliding_window = 5;
    run_ranks(1, [&](World& world) {
      const InitScope scope(at::kMeta, at::kFloat);
      Mesh mesh(Grid::dense({}), world);
      const Decoder decoder(model_, Parallel(mesh));
      for (const Param& param : params_of(decoder))
        tensors_.push_back({param.name, files::SafetensorsDtype::F32, param.spec.shape});
    });
  }
  const std::string& shown() const override { return shown_; }
  const ModelConfig& model() const override { return model_; }
  const std::vector<checkpoint::ModelTensor>& tensors() const override { return tensors_; }
  const checkpoint::FilesBeside& files() const override { return files_; }
  void read(const checkpoint::ModelTensor& tensor, const Box& box, std::span<std::byte> out) const override {
    const bool is_norm = tensor.name.find("norm") != std::string::npos;
    at::Tensor all = normal_tensor(at::IntArrayRef(tensor.shape), 5, tensor.name).to(at::kFloat) * 0.3;
    if (is_norm) all = all + 1;
    for (std::size_t d = 0; d < box.size(); ++d)
      all = all.narrow(static_cast<std::int64_t>(d), box[d].begin, box[d].size());
    all = all.contiguous();
    std::memcpy(out.data(), all.const_data_ptr(), out.size());
  }

 private:
  std::string shown_ = "a small model";
  ModelConfig model_;
  std::vector<checkpoint::ModelTensor> tensors_;
  checkpoint::FilesBeside files_;
};

std::vector<GeneratedSequence> generated(const SmallModel& source, GeneratorOptions options, at::Device device,
                                         GeneratorOptions::Ahead ahead) {
  std::vector<GeneratedSequence> out;
  options.ahead = ahead;
  run_ranks(1, [&](World& world) {
    Mesh mesh(Grid::dense({}), world);
    InferenceModel model(source.model(), source, mesh, device, at::kDouble);
    out = generate(model, {{1, 2, 3}, {60}, {9, 8, 7, 6, 5, 4, 3, 2, 1, 2, 3, 4}}, options);
  });
  return out;
}

void expect_the_same_tokens(at::Device device) {
  using Ahead = GeneratorOptions::Ahead;
  for (const char* family : {"llama", "gpt2", "mistral"}) {
    const SmallModel source(family);
    for (const double temperature : {0.0, 0.8})
      for (const double penalty : {1.0, 1.3})
        for (const std::int64_t tokens : {1, 2, 60}) {  // 60: to the length of the model, which the third reaches first
          const GeneratorOptions options{.sampling = {.temperature = temperature, .top_k = 20, .seed = 3},
                                         .repetition_penalty = penalty,
                                         .max_tokens = tokens,
                                         .end_tokens = {11, 23},
                                         .known_tokens = 65};
          const auto plain = generated(source, options, device, Ahead::never),
                     ahead = generated(source, options, device, Ahead::always);
          for (std::size_t i = 0; i < plain.size(); ++i) {
            EXPECT_EQ(ahead[i].tokens, plain[i].tokens) << family << " at " << temperature << ", sequence " << i;
            EXPECT_EQ(ahead[i].finish, plain[i].finish);
          }
        }
  }
}

TEST(Generator, AheadOfTheHostItChoosesTheSameTokens) { expect_the_same_tokens(at::kCPU); }

TEST(Generator, AheadOfTheHostItChoosesTheSameTokensOnAGpu) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  expect_the_same_tokens(at::Device(at::kCUDA, 0));
}

}  // namespace
}  // namespace trireme
