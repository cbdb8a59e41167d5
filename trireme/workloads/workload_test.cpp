#include "trireme/workloads/workload.hpp"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::workloads {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Workload, AllNamesGiveAModelAndItsData) {
  EXPECT_THAT(workload_names(), ElementsAre("orbit5k", "orbit5kbig", "bert", "bertbig"));
  for (const std::string& name : workload_names()) {
    Workload work = make_workload(name, 40, 1);
    EXPECT_EQ(work.name, name);
    EXPECT_EQ(work.classes, name.starts_with("orbit") ? 5 : 2);
    EXPECT_EQ(work.train_x.size(0), 40);
    EXPECT_EQ(work.validation_x.size(0), 10);
    EXPECT_EQ(at::bincount(work.train_y, {}, work.classes).min().item<int>(), 40 / work.classes);
    EXPECT_EQ(at::bincount(work.validation_y, {}, work.classes).min().item<int>(), 10 / work.classes);
    const at::NoGradGuard no_grad;
    const at::Tensor y = work.model->forward(work.train_x.slice(0, 0, 8));
    EXPECT_EQ(y.sizes(), (std::vector<std::int64_t>{8, work.classes}));
    // Untrained: no class is preferred by far.
    EXPECT_LT(y.softmax(1).max().item<float>(), 0.9);
    EXPECT_GT(y.std(0).max().item<float>(), 1e-4);
  }
}

TEST(Workload, BigOnesAreBigger) {
  const auto parameters = [](const std::string& name) {
    std::int64_t out = 0;
    for (const at::Tensor& p : make_workload(name, 5, 1).model->parameters()) out += p.numel();
    return out;
  };
  EXPECT_GT(parameters("orbit5kbig"), 10 * parameters("orbit5k"));
  EXPECT_GT(parameters("bertbig"), 10 * parameters("bert"));
}

// Ranks that are threads share torch's generator: what it did before must not matter.
TEST(Workload, IsAFunctionOfItsArguments) {
  torch::manual_seed(1);
  const Workload a = make_workload("orbit5k", 20, 3);
  torch::manual_seed(2);
  const Workload b = make_workload("orbit5k", 20, 3), other = make_workload("orbit5k", 20, 4);
  EXPECT_TRUE(at::equal(a.train_x, b.train_x));
  EXPECT_TRUE(at::equal(a.validation_y, b.validation_y));
  const auto own = a.model->named_parameters(), same = b.model->named_parameters(),
             changed = other.model->named_parameters();
  for (std::size_t i = 0; i < own.size(); ++i) {
    EXPECT_TRUE(at::equal(own[i].value(), same[i].value())) << own[i].key();
    const bool is_matrix = own[i].value().dim() > 1;  // biases and norms begin alike
    EXPECT_EQ(at::equal(own[i].value(), changed[i].value()), !is_matrix) << own[i].key();
  }
}

TEST(Workload, RefusesUnknownNamesAndTooFewSamples) {
  EXPECT_THAT(message_of<ConfigError>([] { make_workload("orbit6k", 10, 1); }),
              testing::AllOf(HasSubstr("\"orbit6k\""), HasSubstr("orbit5k, orbit5kbig, bert, bertbig")));
  EXPECT_THAT(message_of<ConfigError>([] { make_workload("orbit5k", 4, 1); }), HasSubstr("samples = 4"));
  EXPECT_EQ(make_workload("orbit5k", 5, 1).validation_x.size(0), 5);
}

}  // namespace
}  // namespace trireme::workloads
