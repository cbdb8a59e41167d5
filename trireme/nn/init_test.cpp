#include "trireme/nn/init.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "trireme/base/philox.hpp"
#include "trireme/nn/norm.hpp"
#include "trireme/parallel/tensor/embedding.hpp"
#include "trireme/parallel/tensor/linear.hpp"
#include "trireme/testing/nn_helpers.hpp"

namespace trireme {
namespace {

/// Every way of sharding a parameter that the library uses.
struct Several final : Layer {
  explicit Several(Parallel parallel) {
    register_module("embedding", std::make_shared<ParallelVocabulary>(37, 6, parallel));
    register_module("qkv", std::make_shared<ColumnLinear>(
                               6, 32, parallel, ColumnOptions{.bias = true, .sections = {{16, 4}, {8, 2}, {8, 2}}}));
    register_module("out", std::make_shared<RowLinear>(16, 6, parallel, RowOptions{.fill = Fill::residual_weight}));
    register_module("norm", std::make_shared<RmsNorm>(6, 1e-5, parallel));
  }
};

std::map<std::string, at::Tensor> wholes(int ranks, at::ScalarType dtype, const InitOptions& options) {
  std::map<std::string, at::Tensor> out;
  run_ranks(ranks, [&](World& world) {
    Mesh mesh(Grid::dense({.tp = ranks}), world);
    const InitScope scope(at::kCPU, dtype);
    Several module(mesh);
    init_parameters(module, mesh, options);
    for (const Param& param : params_of(module)) {
      const FullTensor whole = gather_full_tensor(param.value, param.spec, mesh);
      EXPECT_EQ(whole.disagreement, 0);
      if (mesh.rank() == 0) out[param.name] = whole.value;
    }
  });
  return out;
}

TEST(Init, DoesNotDependOnTheLayout) {
  for (const auto scheme :
       {InitScheme::gpt2, InitScheme::llama, InitScheme::depth, InitScheme::torchtitan, InitScheme::plain})
    for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
      const InitOptions options{.seed = 3, .scheme = scheme, .range = 0.02, .layers = 8};
      const auto one = wholes(1, dtype, options);
      ASSERT_EQ(one.size(), 5u);
      for (const int ranks : {2, 4}) {
        const auto many = wholes(ranks, dtype, options);
        for (const auto& [name, value] : one) EXPECT_TRUE(value.equal(many.at(name))) << name << " on " << ranks;
      }
    }
}

TEST(Init, ElementIIsAFunctionOfSeedNameAndI) {
  const auto values = wholes(2, at::kDouble, {.seed = 3, .scheme = InitScheme::llama, .range = 0.5});
  const RandomStream stream(3, "init out.weight");
  const at::Tensor flat = values.at("out.weight").flatten();
  for (std::int64_t i = 0; i < flat.numel(); ++i)
    ASSERT_EQ(flat[i].item<double>(), 0.5 * stream.normal(static_cast<std::uint64_t>(i))) << i;
}

TEST(Init, SchemesTakeTheirNumbers) {
  const auto deviation = [](const at::Tensor& t) { return t.std().item<double>(); };
  const InitOptions gpt2{.seed = 1, .scheme = InitScheme::gpt2, .range = 0.02, .layers = 8};
  auto values = wholes(1, at::kDouble, gpt2);
  EXPECT_NEAR(deviation(values.at("qkv.weight")), 0.02, 0.004);
  EXPECT_NEAR(deviation(values.at("out.weight")), 0.005, 0.001);
  EXPECT_NEAR(deviation(values.at("embedding.weight")), 0.02, 0.004);
  EXPECT_TRUE(values.at("qkv.bias").eq(0).all().item<bool>());
  EXPECT_TRUE(values.at("norm.weight").eq(1).all().item<bool>());
  values = wholes(1, at::kDouble, {.seed = 1, .scheme = InitScheme::llama, .range = 0.02, .layers = 8});
  EXPECT_NEAR(deviation(values.at("out.weight")), 0.02, 0.004);
  values = wholes(1, at::kDouble, {.seed = 1, .scheme = InitScheme::plain});
  EXPECT_LE(values.at("qkv.weight").abs().max().item<double>(), 1 / std::sqrt(6.0));
  EXPECT_GT(values.at("qkv.weight").abs().max().item<double>(), 0.9 / std::sqrt(6.0));
  EXPECT_GT(values.at("qkv.bias").abs().max().item<double>(), 0);
  EXPECT_LE(values.at("qkv.bias").abs().max().item<double>(), 1 / std::sqrt(6.0));
  EXPECT_NEAR(deviation(values.at("embedding.weight")), 1, 0.2);
  EXPECT_THROW(parse_init_scheme("gpt3"), ConfigError);
}

/// A model by the names that a decoder has.
struct Named final : Layer {
  explicit Named(Parallel parallel) {
    register_module("embedding", std::make_shared<ParallelVocabulary>(300, 64, parallel));
    const auto layers = register_module("layers", std::make_shared<torch::nn::ModuleListImpl>());
    for (int i = 0; i < 8; ++i) {
      const auto layer = std::make_shared<Layer>();
      layer->register_module("out",
                             std::make_shared<RowLinear>(64, 64, parallel, RowOptions{.fill = Fill::residual_weight}));
      const auto mlp = layer->register_module("mlp", std::make_shared<Layer>());
      mlp->register_module("gate_up", std::make_shared<ColumnLinear>(64, 128, parallel));
      layers->push_back(layer);
    }
    register_module("head", std::make_shared<ColumnLinear>(64, 300, parallel));
  }
};

TEST(Init, DepthAndTorchtitan) {
  run_ranks(1, [&](World& world) {
    Mesh mesh(Grid::dense({}), world);
    const InitScope scope(at::kCPU, at::kDouble);
    Named module(mesh);
    const auto deviation = [&](const std::string& name, std::int64_t first = 0, std::int64_t rows = -1) {
      const at::Tensor x = module.named_parameters()[name];
      return x.narrow(0, first, rows < 0 ? x.size(0) : rows).std().item<double>();
    };
    for (const auto scheme : {InitScheme::depth, InitScheme::torchtitan}) {
      init_parameters(module, mesh, {.seed = 5, .scheme = scheme, .range = 0.02, .layers = 8});
      for (const int layer : {0, 3, 7}) {
        const std::string name = "layers." + std::to_string(layer);
        const double narrow = 0.02 / std::sqrt(2.0 * (layer + 1));
        EXPECT_NEAR(deviation(name + ".out.weight") / narrow, 1, 0.06) << name;
        const bool titan = scheme == InitScheme::torchtitan;
        EXPECT_NEAR(deviation(name + ".mlp.gate_up.weight", 0, 64) / 0.02, 1, 0.06) << name;
        EXPECT_NEAR(deviation(name + ".mlp.gate_up.weight", 64, 64) / (titan ? narrow : 0.02), 1, 0.06) << name;
      }
    }
    EXPECT_NEAR(deviation("embedding.weight", 0, 300), 1, 0.03);
    EXPECT_NEAR(deviation("head.weight") * 8, 0.9866, 0.02);  // of a normal distribution cut at three deviations
    EXPECT_LE(module.named_parameters()["head.weight"].abs().max().item<double>(), 3.0 / 8);
    EXPECT_GT(module.named_parameters()["head.weight"].abs().max().item<double>(), 2.8 / 8);
  });
}

TEST(Init, PaddingRowsAreZero) {
  run_ranks(4, [&](World& world) {
    Mesh mesh(Grid::dense({.tp = 4}), world);
    ParallelVocabulary vocabulary(37, 6, {mesh});
    ColumnLinear head(6, 37, {mesh}, {.bias = true, .padded = true});
    init_parameters(vocabulary, mesh, {.seed = 3});
    init_parameters(head, mesh, {.seed = 3, .scheme = InitScheme::plain});
    const std::int64_t rows = vocabulary_range(37, mesh.group(Axis::tp)).size();
    EXPECT_EQ(rows, mesh.rank() == 3 ? 7 : 10);
    for (const at::Tensor& x : {vocabulary.weight_vD, head.weight_fD, head.bias_f}) {
      EXPECT_EQ(x.size(0), 128);
      EXPECT_TRUE(x.narrow(0, rows, 128 - rows).eq(0).all().item<bool>());
      EXPECT_TRUE(x.narrow(0, 0, rows).ne(0).all().item<bool>());
    }
  });
}

TEST(InitScope, MetaAllocatesNothingAndToEmptyGivesStorage) {
  run_ranks(1, [&](World& world) {
    Mesh mesh(Grid::dense({}), world);
    const InitScope meta(at::kMeta, at::kBFloat16);
    Several module(mesh);
    {
      const InitScope inner(at::kCPU, at::kDouble);
      EXPECT_EQ(RmsNorm(4, 1e-5, mesh).weight_D.scalar_type(), at::kDouble);
    }
    for (const Param& param : params_of(module)) {
      EXPECT_TRUE(param.value.is_meta());
      EXPECT_EQ(param.value.scalar_type(), at::kBFloat16);
      EXPECT_EQ(param.value.storage().data_ptr().get(), nullptr);
    }
    to_empty(module, at::kCPU);
    for (const Param& param : params_of(module)) {
      EXPECT_TRUE(param.value.is_cpu());
      EXPECT_TRUE(param.value.requires_grad());
      EXPECT_NE(param.value.storage().data_ptr().get(), nullptr);
    }
    init_parameters(module, mesh, {.seed = 1});
    EXPECT_TRUE(dynamic_cast<RmsNorm&>(*module.named_children()["norm"]).weight_D.eq(1).all().item<bool>());
  });
  EXPECT_EQ(current_init_options().dtype(), caffe2::TypeMeta::Make<float>());
}

/// Any range of a parameter has the values of the whole one, sharded and padded or not.
TEST(RandomValues, OfARangeAreThoseOfTheWhole) {
  for (const int tp : {1, 2, 4})
    run_ranks(tp, [&](World& world) {
      Mesh mesh(Grid::dense({.tp = tp}), world);
      const InitScope scope(at::kCPU, at::kDouble);
      Several module(mesh);
      const InitOptions options{.seed = 5};
      init_parameters(module, mesh, options);
      const ParamValues values = random_values(mesh, options);
      for (const Param& param : params_of(module)) {
        const at::Tensor flat = param.value.detach().reshape(-1);
        for (std::int64_t begin = 0; begin < flat.numel(); begin += 7)
          for (const std::int64_t size : {1, 5, 13}) {
            const std::int64_t end = std::min(begin + size, flat.numel());
            const at::Tensor out = at::empty({end - begin}, at::kDouble);
            values(param, {begin, end}, out);
            ASSERT_TRUE(out.equal(flat.narrow(0, begin, end - begin))) << param.name << " " << begin << " " << end;
          }
      }
    });
}

/// A range is read in the few boxes that it consists of, and nothing besides.
TEST(ParamValues, ARangeIsReadByItsBoxes) {
  run_ranks(1, [&](World& world) {
    Mesh mesh(Grid::dense({}), world);
    const Param param{"w", at::empty({2, 3, 70}, at::kMeta), {.shape = {2, 3, 70}}};
    std::vector<Box> boxes;
    const at::Tensor out = at::full({150}, -1, at::kDouble);
    read_by_boxes(param, mesh, {60, 210}, out, [&](const Box& global, at::Tensor into) {
      boxes.push_back(global);
      for (std::int64_t row = 0; row < into.size(1); ++row)
        into.select(1, row).fill_(static_cast<double>(global[1].begin + row));
    });
    EXPECT_EQ(boxes, (std::vector<Box>{{{0, 1}, {0, 1}, {60, 70}}, {{0, 1}, {1, 3}, {0, 70}}}));
    EXPECT_TRUE(out.equal(at::arange(60, 210).div(70, "floor").to(at::kDouble)));
  });
}

TEST(Init, LeavesOrdinaryModulesAsTheyWereMade) {
  run_ranks(1, [&](World& world) {
    Mesh mesh(Grid::dense({}), world);
    torch::nn::ModuleList model;
    model->push_back(torch::nn::LayerNorm(torch::nn::LayerNormOptions({4})));
    model->push_back(std::make_shared<RmsNorm>(4, 1e-5, mesh));
    init_parameters(*model, mesh, {.seed = 1});
    for (const Param& param : params_of(*model))
      EXPECT_TRUE(param.value.eq(param.name == "0.bias" ? 0 : 1).all().item<bool>()) << param.name;
  });
}

TEST(Params, AreListedByFullNameWithTheirSpecs) {
  run_ranks(2, [&](World& world) {
    Mesh mesh(Grid::dense({.tp = 2}), world);
    Several module(mesh);
    set_paths(module);
    std::vector<std::string> names;
    for (const Param& param : params_of(module)) names.push_back(param.name);
    EXPECT_EQ(names,
              (std::vector<std::string>{"embedding.weight", "qkv.weight", "qkv.bias", "out.weight", "norm.weight"}));
    EXPECT_EQ(dynamic_cast<Layer&>(*module.named_children()["qkv"]).path(), "qkv");
    torch::nn::Linear ordinary(3, 2);
    const auto params = params_of(*ordinary);
    ASSERT_EQ(params.size(), 2u);
    EXPECT_EQ(params[0].spec.shape, (Shape{2, 3}));
    EXPECT_TRUE(params[0].spec.placement.cuts.empty());
  });
}

}  // namespace
}  // namespace trireme
