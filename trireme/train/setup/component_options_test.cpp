#include "trireme/train/setup/component_options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/testing/test_helpers.hpp"
#include "trireme/train/setup/dtypes.hpp"

namespace trireme {
namespace {

using testing::HasSubstr;

Config some_config() {
  Config config;
  config.model.dtype = "bfloat16";
  config.training.steps = 100;
  resolve_dtypes(config, at::kCPU);
  return config;
}

TEST(ComponentOptions, OfTheLoss) {
  Config config = some_config();
  config.training.label_smoothing = 0.25;
  config.training.z_loss_coef = 1e-3;
  const CrossEntropyOptions options = loss_options(config, at::kCPU);
  EXPECT_EQ(options.label_smoothing, 0.25);
  EXPECT_EQ(options.z_loss, 1e-3);
}

TEST(ComponentOptions, EveryKeyArrives) {
  Config config = some_config();
  config.parallelism.zero = 2;
  config.parallelism.replicate = 4;
  config.parallelism.bucket_mb = 7;
  config.parallelism.overlap_comm = config.parallelism.reduce_scatter = config.parallelism.contiguous_gradients = false;
  config.parallelism.reshard_after_forward = false;
  config.parallelism.max_live_parameters = 11;
  config.parallelism.max_reuse_distance = 12;
  config.parallelism.persistence_threshold = 13;
  config.precision.reduce = "bfloat16";
  const ZeroOptions zero = zero_options(config);
  EXPECT_EQ(zero.stage, 2);
  EXPECT_EQ(zero.replicate, 4);
  EXPECT_EQ(zero.bucket_mb, 7);
  EXPECT_FALSE(zero.overlap || zero.reduce_scatter || zero.contiguous_gradients || zero.reshard_after_forward);
  EXPECT_EQ(zero.max_live_parameters, 11);
  EXPECT_EQ(zero.max_reuse_distance, 12);
  EXPECT_EQ(zero.persistence_threshold, 13);
  EXPECT_EQ(zero.accumulate, at::kFloat);
  EXPECT_EQ(zero.reduce, at::kBFloat16);

  config.optimizer = {.name = "sgd",
                      .lr = 0.5,
                      .betas = {0.1, 0.2},
                      .eps = 0.3,
                      .weight_decay = 0.4,
                      .no_decay = {"x"},
                      .momentum = 0.6,
                      .nesterov = true};
  config.precision.states = "bfloat16";
  const UpdateOptions update = update_options(config);
  EXPECT_EQ(update.optimizer.kind, OptimizerKind::sgd);
  EXPECT_EQ(update.optimizer.beta1, 0.1);
  EXPECT_EQ(update.optimizer.beta2, 0.2);
  EXPECT_EQ(update.optimizer.eps, 0.3);
  EXPECT_EQ(update.optimizer.weight_decay, 0.4);
  EXPECT_EQ(update.optimizer.momentum, 0.6);
  EXPECT_TRUE(update.optimizer.nesterov);
  EXPECT_EQ(update.optimizer.no_decay, (std::vector<std::string>{"x"}));
  EXPECT_EQ(update.states, at::kBFloat16);
  EXPECT_EQ(update.master, at::kFloat);

  config.lr_scheduler = {.warmup_steps = 10, .decay = "linear", .decay_steps = 20, .min_lr = 0.1};
  const LrSchedule lr{lr_options(config)};
  EXPECT_EQ(lr(5), 0.25);
  EXPECT_EQ(lr(81), 0.5);
  EXPECT_DOUBLE_EQ(lr(91), 0.3);
  EXPECT_DOUBLE_EQ(lr(101), 0.1);
}

TEST(ComponentOptions, WhatDoesNotFitIsNamed) {
  Config config = some_config();
  EXPECT_TRUE(check_options(config).empty());
  config.optimizer.betas = {0.9};
  EXPECT_THAT(message_of<ConfigError>([&] { check_options(config); }), HasSubstr("must be 2"));
}

TEST(Dtypes, AutoIsWhatTheDeviceMultiplies) {
  Config config;
  config.model.dtype = "auto";
  config.precision.param = "auto";
  resolve_dtypes(config, at::kCPU);
  EXPECT_TRUE(config.model.dtype == "float32" || config.model.dtype == "bfloat16");
  EXPECT_EQ(config.precision.param, config.model.dtype);
  config.precision.param = "float64";
  resolve_dtypes(config, at::kCPU);
  EXPECT_EQ(config.precision.param, "float64");
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf})
    EXPECT_EQ(scalar_type(dtype_word(dtype)), dtype);
  EXPECT_THROW(scalar_type("int8"), ConfigError);
}

}  // namespace
}  // namespace trireme
