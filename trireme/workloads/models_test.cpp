#include "trireme/workloads/models.hpp"

#include <cmath>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/test_helpers.hpp"
#include "trireme/workloads/orbit_diagrams.hpp"
#include "trireme/workloads/text_data.hpp"

namespace trireme::workloads {
namespace {

/// Small, and in fp64, where a difference is not rounding.
torch::nn::Sequential small_orbit_model() {
  torch::manual_seed(1);
  torch::nn::Sequential model =
      orbit_model({.classes = 5, .layers = 2, .block = {.width = 16, .heads = 4, .hidden = 24}});
  model->to(at::kDouble);
  return model;
}

torch::nn::Sequential small_bert_model() {
  torch::manual_seed(1);
  torch::nn::Sequential model = bert_model(
      {.vocabulary = 50, .length = 12, .classes = 3, .layers = 2, .block = {.width = 16, .heads = 2, .hidden = 24}});
  model->to(at::kDouble);
  return model;
}

double difference(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

/// Diagrams, the last of them with 10 pairs only.
at::Tensor some_diagrams() {
  at::Tensor x = orbit_diagrams(Part::train, 6, 1).x.to(at::kDouble);
  x[5].slice(0, 10).zero_();
  return x;
}

TEST(OrbitModel, PaddingChangesNothing) {
  torch::nn::Sequential model = small_orbit_model();
  const at::Tensor x = some_diagrams(), y = model->forward(x);
  EXPECT_EQ(y.sizes(), (std::vector<std::int64_t>{6, 5}));
  const at::Tensor longer = at::cat({x, at::zeros({6, 37, 4}, at::kDouble)}, 1);
  EXPECT_LT(difference(model->forward(longer), y), 1e-12);
  EXPECT_LT(difference(model->forward(x.slice(0, 5).slice(1, 0, 10)), y.slice(0, 5)), 1e-12);
  EXPECT_GT(difference(model->forward(x.slice(0, 0, 5).slice(1, 0, 10)), y.slice(0, 0, 5)), 1e-3);  // these were points

  model->to(at::kFloat);
  EXPECT_LT(difference(model->forward(longer.to(at::kFloat)), model->forward(x.to(at::kFloat))), 1e-6);
}

TEST(OrbitModel, PaddingChangesNoGradient) {
  torch::nn::Sequential model = small_orbit_model();
  const at::Tensor x = some_diagrams();
  const auto gradients = [&](const at::Tensor& input) {
    model->zero_grad();
    model->forward(input).square().sum().backward();
    std::vector<at::Tensor> out;
    for (const at::Tensor& p : model->parameters()) out.push_back(p.grad().clone());
    return out;
  };
  const auto a = gradients(x), b = gradients(at::cat({x, at::zeros({6, 5, 4}, at::kDouble)}, 1));
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_LT(difference(a[i], b[i]), 1e-10);
    EXPECT_GT(a[i].abs().max().item<double>(), 0) << model->named_parameters()[i].key();
  }
}

TEST(OrbitModel, ADiagramWithoutPairsIsNotNaN) {
  torch::nn::Sequential model = small_orbit_model();
  const at::Tensor y = model->forward(at::zeros({2, 7, 4}, at::kDouble));
  EXPECT_TRUE(y.isfinite().all().item<bool>());
  EXPECT_LT(difference(model->forward(at::zeros({2, 3, 4}, at::kDouble)), y), 1e-12);
}

TEST(OrbitModel, TheOrderOfPointsChangesNothing) {
  torch::nn::Sequential model = small_orbit_model();
  const at::Tensor x = some_diagrams(), order = at::randperm(kDiagramPairs);
  EXPECT_LT(difference(model->forward(x.index_select(1, order)), model->forward(x)), 1e-12);
}

TEST(OrbitModel, EveryPointCounts) {
  torch::nn::Sequential model = small_orbit_model();
  at::Tensor x = some_diagrams();
  const at::Tensor y = model->forward(x);
  for (const std::int64_t point : {0, 31, 63}) {
    at::Tensor changed = x.clone();
    changed.select(1, point).slice(1, 0, 2) += 0.5;
    EXPECT_GT(difference(model->forward(changed)[0], y[0]), 1e-6) << point;
  }
}

TEST(BertModel, TheFirstTokenSeesAllOthersAndWhereTheyAre) {
  torch::nn::Sequential model = small_bert_model();
  const at::Tensor x = at::randint(1, 50, {4, 12}, at::kLong), y = model->forward(x);
  EXPECT_EQ(y.sizes(), (std::vector<std::int64_t>{4, 3}));
  for (std::int64_t t = 0; t < 12; ++t) {
    at::Tensor changed = x.clone();
    changed.select(1, t) = (changed.select(1, t) + 7) % 50;
    EXPECT_GT(difference(model->forward(changed), y), 1e-4) << t;
  }
  EXPECT_GT(difference(model->forward(x.flip({1})), y), 1e-4);
  EXPECT_GT(difference(model->forward(at::cat({x.slice(1, 0, 1), x.slice(1, 1).flip({1})}, 1)), y), 1e-4);
  EXPECT_EQ(model->forward(x.slice(1, 0, 5)).size(0), 4);  // shorter texts are fine, longer ones are not
  EXPECT_THAT(message_of<ConfigError>([&] { model->forward(at::zeros({1, 13}, at::kLong)); }),
              testing::HasSubstr("13 tokens: the model has 12"));
}

TEST(Models, ACloneGivesTheSameAndIsIndependent) {
  const at::Tensor points = some_diagrams(), tokens = at::randint(0, 50, {4, 12}, at::kLong);
  for (auto& [model, x] : {std::pair(small_orbit_model(), points), std::pair(small_bert_model(), tokens)}) {
    torch::nn::Sequential original = model;
    torch::nn::Sequential copy(std::dynamic_pointer_cast<torch::nn::SequentialImpl>(original->clone()));
    const at::Tensor y = original->forward(x);
    EXPECT_EQ(difference(copy->forward(x), y), 0);
    {
      const at::NoGradGuard no_grad;
      for (at::Tensor& p : copy->parameters()) p.mul_(1.5);
    }
    EXPECT_EQ(difference(original->forward(x), y), 0);
    EXPECT_GT(difference(copy->forward(x), y), 1e-3);
  }
}

TEST(Models, EachChildMapsOneTensorToOne) {
  const at::Tensor points = some_diagrams(), tokens = at::randint(0, 50, {4, 12}, at::kLong);
  for (auto& [model, input] : {std::pair(small_orbit_model(), points), std::pair(small_bert_model(), tokens)}) {
    torch::nn::Sequential whole = model;
    at::Tensor x = input;
    EXPECT_EQ(whole->size(), 5U);  // embedding, two blocks, pooling, classifier
    for (torch::nn::AnyModule& child : *whole) x = child.forward<at::Tensor>(x);
    EXPECT_EQ(difference(x, whole->forward(input)), 0);
  }
}

TEST(Models, DropoutActsInTrainingOnly) {
  torch::manual_seed(1);
  torch::nn::Sequential orbit = orbit_model({.layers = 1, .block = {.width = 16, .dropout = 0.5}});
  const at::Tensor x = some_diagrams().to(at::kFloat);
  EXPECT_GT(difference(orbit->forward(x), orbit->forward(x)), 0);
  orbit->eval();
  EXPECT_EQ(difference(orbit->forward(x), orbit->forward(x)), 0);
}

TEST(Models, RefuseHeadsThatDoNotDivideTheWidth) {
  EXPECT_THAT(message_of<ConfigError>([] { orbit_model({.block = {.width = 10, .heads = 4}}); }),
              testing::HasSubstr("width = 10 is not divisible by heads = 4"));
  EXPECT_THROW(bert_model({.block = {.width = 10, .heads = 0}}), ConfigError);
}

struct Losses {
  double first = 0, last = 0;
};

/// Before the first and after the last of `steps` updates on one batch.
Losses fit(torch::nn::Sequential& model, const at::Tensor& x, const at::Tensor& y, int steps) {
  torch::optim::Adam optimizer(model->parameters(), 3e-3);
  Losses out;
  for (int i = 0; i <= steps; ++i) {
    optimizer.zero_grad();
    const at::Tensor loss = torch::nn::functional::cross_entropy(model->forward(x), y);
    loss.backward();
    optimizer.step();
    (i == 0 ? out.first : out.last) = loss.item<double>();
  }
  return out;
}

TEST(OrbitModel, Learns) {
  torch::manual_seed(1);
  torch::nn::Sequential model = orbit_model({.layers = 1, .block = {.width = 32, .heads = 2, .hidden = 64}});
  const LabelledDiagrams data = orbit_diagrams(Part::train, 20, 1);
  const auto [first, last] = fit(model, data.x, data.y, 60);
  EXPECT_NEAR(first, std::log(5.0), 0.5);
  EXPECT_LT(last, 0.6 * first);
}

TEST(BertModel, Learns) {
  torch::manual_seed(1);
  torch::nn::Sequential model =
      bert_model({.vocabulary = 60, .length = 16, .layers = 1, .block = {.width = 32, .heads = 2, .hidden = 64}});
  const LabelledText data = text_data({.samples = 64, .length = 16, .vocabulary = 60}, 1);
  const auto [first, last] = fit(model, data.x, data.y, 40);
  EXPECT_NEAR(first, std::log(2.0), 0.4);
  EXPECT_LT(last, 0.3 * first);
}

}  // namespace
}  // namespace trireme::workloads
