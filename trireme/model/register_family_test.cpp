#include "trireme/model/register_family.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "trireme/config/schema/registered_families.hpp"
#include "trireme/config/translate/hf_config_write.hpp"
#include "trireme/describe/weight_names.hpp"
#include "trireme/model/decoder.hpp"
#include "trireme/testing/config_helpers.hpp"
#include "trireme/testing/model_helpers.hpp"
#include "trireme/testing/nn_helpers.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using testing::HasSubstr;

/// x + up(x), whose width depends on the layer; `what` is wrong with it.
class OddLayer final : public DecoderLayer {
 public:
  OddLayer(const ModelConfig& m, const Parallel& parallel, std::int64_t layer, std::string what)
      : what_(std::move(what)), width_(4 * (layer + 1)) {
    up_ = register_module("up", std::make_shared<ColumnLinear>(m.hidden_size, width_, parallel));
    down_ = register_module("down", std::make_shared<RowLinear>(width_, m.hidden_size, parallel));
    if (what_ == "a module of torch") register_module("plain", torch::nn::Linear(2, 2));
    if (what_ == "a buffer") register_buffer("mask", at::ones({2}));
  }
  at::Tensor forward(const at::Tensor& x, const TokenFacts&) override {
    if (what_ == "nothing") return {};
    const at::Tensor y = x + down_->forward(up_->forward(x).tanh());
    return what_ == "other sizes" ? y.narrow(1, 0, 3) : y;
  }

 private:
  const std::string what_;
  const std::int64_t width_;
  std::shared_ptr<ColumnLinear> up_;
  std::shared_ptr<RowLinear> down_;
};

ModelFamily odd(const std::string& name, const std::string& what = "") {
  return {.name = name, .layer = [what](const ModelConfig& m, const Parallel& parallel, std::int64_t i) {
            return what == "null" ? nullptr : std::make_shared<OddLayer>(m, parallel, i, what);
          }};
}

/// Before main(), because other tests of this program read configs.
const bool kAreRegistered = [] {
  register_family(odd("odd"));
  ModelFamily normed = odd("odd-normed");
  normed.like = "gpt2";
  normed.norm = [](const ModelConfig& m, const Parallel& parallel) {
    return std::make_shared<RmsNorm>(m.hidden_size, m.norm_eps, parallel, parallel.partial_between());
  };
  register_family(normed);
  ModelFamily no_norm = odd("odd-no-norm");
  no_norm.norm = [](const ModelConfig&, const Parallel&) { return nullptr; };
  register_family(no_norm);
  for (const char* what : {"a module of torch", "a buffer", "nothing", "other sizes", "null"}) {
    std::string name = std::string("odd-") + what;
    std::ranges::replace(name, ' ', '-');
    register_family(odd(name, what));
  }
  return true;
}();

void with_decoder(const ModelConfig& model, const std::function<void(Decoder&)>& f) {
  run_ranks(1, [&](World& world) {
    Mesh mesh(Grid::dense({}), world);
    Decoder decoder(model, mesh);
    init_parameters(decoder, mesh, {});
    f(decoder);
  });
}

std::string refusal(const ModelFamily& family) {
  return message_of<ConfigError>([&] { register_family(family); });
}

TEST(RegisterFamily, NamesAreChecked) {
  ASSERT_TRUE(kAreRegistered);
  EXPECT_EQ(refusal(odd("llama")),
            "register_family: llama is a built-in family\n  fix: another name; like = \"llama\" to start from its "
            "defaults");
  EXPECT_THAT(refusal(odd("odd")), HasSubstr("register_family: odd is registered already\n  fix: "));
  for (const char* name : {"", "a b", "a\"", "ä"})
    EXPECT_THAT(refusal(odd(name)), HasSubstr("must be letters")) << name;
  ModelFamily family = odd("new");
  family.like = "odd";
  EXPECT_THAT(refusal(family), HasSubstr("new: like = \"odd\" is not a built-in family\n  fix: one of gpt2, "));
  EXPECT_THAT(refusal({.name = "new", .layer = nullptr}),
              HasSubstr("register_family: new has no layer, attention or MLP of its own\n  fix: "));
  load(kTiny);
  EXPECT_EQ(refusal(odd("new")),
            "register_family: new is registered after a config has been read\n  fix: register families first, at the "
            "beginning of main()");
  EXPECT_EQ(find_model_family("new"), nullptr);
  EXPECT_EQ(config::find_family("new"), nullptr);
}

TEST(RegisterFamily, ConfigsNameIt) {
  const std::string toml = std::string(kTiny) + "model.model_type = 'odd'\n";
  const config::LoadedConfig loaded = load_good(toml);
  EXPECT_FALSE(loaded.config.checkpoint.export_hf);
  EXPECT_THAT(loaded.place_of("checkpoint.export_hf").note, HasSubstr("the family odd is registered"));
  EXPECT_TRUE(load_good(kTiny).config.checkpoint.export_hf);
  const auto told = [&](const std::string& line) { return message_of<ConfigError>([&] { load_good(toml + line); }); };
  for (const char* line : {"checkpoint.export_hf = true", "checkpoint.format = 'nanotron'", "model.init = 'hf:x'"})
    EXPECT_THAT(told(line), HasSubstr(" with the family odd\n")) << line;
  EXPECT_THAT(told("optimizer.no_decay = ['up.weight', 'nothing-like-it']"), testing::Eq("no error"));
}

TEST(RegisterFamily, CountsAreThoseOfTheModel) {
  for (const char* name : {"odd", "odd-normed"})
    for (const bool tied : {false, true}) {
      ModelConfig m = small_model("llama");
      m.model_type = name;
      m.num_hidden_layers = 3;
      m.tie_word_embeddings = tied;
      std::int64_t elements = 0;
      with_decoder(m, [&](Decoder& decoder) {
        for (const Param& param : params_of(decoder)) elements += numel(param.spec.shape);  // without padding
      });
      const config::ParameterCounts counts = config::count_parameters(m);
      EXPECT_EQ(counts.own, 2 * m.hidden_size * (4 + 8 + 12));
      EXPECT_EQ(counts.total(), elements) << name << tied;
      EXPECT_EQ(config::active_parameters(m), elements);
      const double matrices = static_cast<double>(counts.own + m.vocab_size * m.hidden_size),
                   scores = static_cast<double>(12 * 3 * 16 * 8);
      EXPECT_EQ(config::model_flops_per_token(m, 8, config::CountedScores::full), 6 * matrices + scores);
    }
}

TEST(RegisterFamily, OtherFormatsHaveNoNamesForIt) {
  ModelConfig m = small_model("llama");
  m.model_type = "odd";
  const std::string names = message_of<ConfigError>([&] { weight_names(m); });
  EXPECT_EQ(names,
            "names of weights of the family odd: this program has registered it, and other formats have no names for "
            "its parameters\n  fix: checkpoints of our own format, which load on any layout");
  EXPECT_THAT(message_of<ConfigError>([&] { config::hf_config_json(m, "float32"); }),
              HasSubstr("a config.json for transformers of the family odd: "));
}

TEST(RegisterFamily, LayersAreChecked) {
  const auto told = [](const std::string& name, bool runs = false) {
    ModelConfig m = small_model("llama");
    m.model_type = name;
    return message_of<ConfigError>([&] {
      with_decoder(m, [&](Decoder& decoder) {
        if (runs) decoder.hidden(at::zeros({4}, at::kLong), whole_samples(1, 4));
      });
    });
  };
  EXPECT_EQ(told("odd", true), "no error");
  EXPECT_THAT(told("odd-a-module-of-torch"), HasSubstr("layers.0.plain.weight is a parameter of a module that is not "
                                                       "a Layer: how ranks share it is unknown\n  fix: "));
  EXPECT_THAT(told("odd-a-buffer"), HasSubstr("layers.0.mask is a buffer, which no checkpoint would hold\n  fix: "));
  EXPECT_THAT(told("odd-null"), HasSubstr("the family odd-null returned null for layer 0"));
  EXPECT_THAT(told("odd-no-norm"), HasSubstr("the family odd-no-norm returned a null norm"));
  EXPECT_EQ(told("odd-nothing", true),
            "the family odd-nothing: layers.0 returns nothing for an input of [4, 16]: must be of the same sizes");
  EXPECT_THAT(told("odd-other-sizes", true), HasSubstr("layers.0 returns [4, 3] for an input of [4, 16]"));
}

}  // namespace
}  // namespace trireme
