#include "trireme/train/save/save_weights.hpp"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/config/translate/hf_config.hpp"
#include "trireme/files/safetensors_folder.hpp"
#include "trireme/model/decoder.hpp"
#include "trireme/model/hugging_face.hpp"
#include "trireme/nn/init.hpp"
#include "trireme/nn/init_scope.hpp"
#include "trireme/testing/temp_folder.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

ModelConfig small_model(const std::string& family) {
  ModelConfig m;
  const bool gpt2 = family == "gpt2";
  m.model_type = family;
  m.hidden_size = 24;
  m.num_hidden_layers = 2;
  m.num_attention_heads = 4;
  m.num_key_value_heads = gpt2 ? 4 : 2;
  m.head_dim = 6;
  m.intermediate_size = 40;
  m.vocab_size = 53;  // with 75 rows of padding, or 101 and 102
  m.max_position_embeddings = 16;
  m.hidden_act = gpt2 ? "gelu_new" : "silu";
  m.tie_word_embeddings = gpt2;
  return m;
}

SmallFiles files_of(const ModelConfig& model, const std::string& dtype) {
  const std::optional<data::Tokenizer> none;
  std::vector<std::string> warnings;
  return files_beside_weights({.model = model, .dtype = dtype, .tokenizer = none, .tokenizer_path = ""}, warnings);
}

/// The saved tensors are byte-identical for every layout, and load back unchanged.
TEST(SaveWeights, EveryLayoutComesBack) {
  for (const std::string family : {"gpt2", "llama"})
    for (const int stage : {0, 1, 3})
      for (const int tp : {1, 2}) {
        const ModelConfig model = small_model(family);
        const TempFolder folder;
        const std::filesystem::path path = folder.path() / "step-1";
        const Degrees degrees{.dp = 2, .tp = tp};
        run_ranks(2 * tp, [&](World& world) {
          Mesh mesh(Grid::dense(degrees), world);
          const InitScope scope(at::kCPU, at::kBFloat16);
          Decoder decoder(model, {mesh, tp > 1});
          set_paths(decoder);
          Zero zero(params_of(decoder), decoder.unit_plan(), mesh, {.stage = stage, .persistence_threshold = 100}, {},
                    random_values(mesh, {.seed = 3, .scheme = InitScheme::plain}));
          save_weights(zero, mesh, model, files_of(model, "bfloat16"), path);
        });
        run_ranks(1, [&](World& world) {
          Mesh mesh(Grid::dense({}), world);
          const InitScope scope(at::kCPU, at::kBFloat16);
          Decoder loaded(model, {mesh, false}), made(model, {mesh, false});
          load_hugging_face(loaded, path, mesh);
          init_parameters(made, mesh, {.seed = 3, .scheme = InitScheme::plain});
          const auto a = params_of(loaded), b = params_of(made);
          for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].value.equal(b[i].value)) << a[i].name;
        });
        EXPECT_TRUE(std::filesystem::exists(path / "config.json"));
        const files::SafetensorsFolder written(path);
        if (family == "gpt2") {
          EXPECT_EQ(written.at("transformer.wte.weight").entry.shape, (Shape{53, 24}));
        } else {
          EXPECT_EQ(written.at("model.embed_tokens.weight").entry.shape, (Shape{53, 24}));
          EXPECT_EQ(written.at("lm_head.weight").entry.shape, (Shape{53, 24}));
        }
      }
}

TEST(SaveWeights, NothingIsWrittenOver) {
  const TempFolder folder;
  const ModelConfig model = small_model("llama");
  run_ranks(1, [&](World& world) {
    Mesh mesh(Grid::dense({}), world);
    Decoder decoder(model, {mesh, false});
    init_parameters(decoder, mesh, {});
    Zero zero(params_of(decoder), {}, mesh, {}, {});
    save_weights(zero, mesh, model, files_of(model, "float32"), folder.path() / "step-1");
    EXPECT_THROW(save_weights(zero, mesh, model, files_of(model, "float32"), folder.path() / "step-1"),
                 CheckpointError);
  });
}

/// With the others, whole or sharded.
TEST(SaveWeights, FrozenParametersAreSaved) {
  const ModelConfig model = small_model("llama");
  for (const int stage : {1, 3}) {
    const TempFolder folder;
    run_ranks(4, [&](World& world) {
      Mesh mesh(Grid::dense({.dp = 2, .tp = 2}), world);
      Decoder decoder(model, {mesh, true});
      init_parameters(decoder, mesh, {.seed = 3, .scheme = InitScheme::plain});
      for (const Param& param : params_of(decoder))
        if (param.name == "embedding.weight" || param.name == "layers.1.mlp_norm.weight")
          at::Tensor(param.value).set_requires_grad(false);
      Zero zero(params_of(decoder), decoder.unit_plan(), mesh, {.stage = stage, .persistence_threshold = 100}, {});
      std::size_t frozen = 0;
      for (const ZeroPart* part : zero.parts()) frozen += part->is_trained ? 0 : part->partition.params().size();
      ASSERT_EQ(frozen, 2U);
      save_weights(zero, mesh, model, files_of(model, "float32"), folder.path() / "saved");
    });
    run_ranks(1, [&](World& world) {
      Mesh mesh(Grid::dense({}), world);
      Decoder loaded(model, {mesh, false}), made(model, {mesh, false});
      load_hugging_face(loaded, folder.path() / "saved", mesh);
      init_parameters(made, mesh, {.seed = 3, .scheme = InitScheme::plain});
      const std::vector<Param> found = params_of(loaded), wanted = params_of(made);
      ASSERT_EQ(found.size(), wanted.size());
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_TRUE(found[i].value.equal(wanted[i].value)) << found[i].name << ", ZeRO " << stage;
    });
  }
}

/// The parameters that hold a NaN or an infinity, on every rank.
TEST(SaveWeights, NamesWhatIsNotFinite) {
  const ModelConfig model = small_model("llama");
  run_ranks(2, [&](World& world) {
    Mesh mesh(Grid::dense({.tp = 2}), world);
    Decoder decoder(model, {mesh, false});
    init_parameters(decoder, mesh, {});
    const at::NoGradGuard no_grad;
    for (const Param& param : params_of(decoder))
      if (param.name == "layers.0.mlp.down.weight" && mesh.coord(Axis::tp) == 1)
        at::Tensor(param.value).view(-1)[3] = std::numeric_limits<double>::infinity();
    Zero zero(params_of(decoder), {}, mesh, {}, {});
    EXPECT_THAT(not_finite_weights(zero, mesh), testing::ElementsAre("layers.0.mlp.down.weight"));
  });
}

TEST(SaveWeights, SaysWhatTransformersLacks) {
  ModelConfig model = small_model("llama");
  EXPECT_EQ(what_transformers_lacks(model, "float32"), "");
  model.sliding_window = 8;
  EXPECT_THAT(what_transformers_lacks(model, "float32"), testing::HasSubstr("sliding_window"));
}

}  // namespace
}  // namespace trireme
