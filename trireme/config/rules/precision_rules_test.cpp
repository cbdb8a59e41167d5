#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

TEST(PrecisionRules, WhatIsAllowed) {
  for (const char* toml :
       {"model.dtype = 'auto'", "model.dtype = 'float64'", "precision.param = 'float64'",
        "model.dtype = 'float64'\nprecision.param = 'float64'\nprecision.states = 'float64'",
        "model.dtype = 'bfloat16'\nprecision.accumulate = 'bfloat16'\nprecision.reduce = 'bfloat16'",
        "precision.param = 'float16'\nprecision.accumulate = 'float16'", "precision.states = 'bfloat16'",
        "precision.master = 'float32'", "precision.reduce = 'bfloat16'"})
    EXPECT_EQ(error_of(std::string(kTiny) + toml), "no error") << toml;
}

TEST(PrecisionRules, OneAtATime) {
  const std::string everything = "float64 is for verifying layouts: every dtype must be float64";
  const Told rows[] = {
      {"model.dtype = 'float64'\nprecision.master = 'float32'",
       "precision.master = \"float32\" with float64 weights\n  --> run.toml:3  " + everything +
           "\n  fix: leave it out, or set precision.master = \"float64\""},
      {"precision.param = 'float64'\nprecision.reduce = 'bfloat16'",
       "precision.reduce = \"bfloat16\" with float64 weights\n  --> run.toml:3  " + everything +
           "\n  fix: leave it out, or set precision.reduce = \"float64\""},
      {"precision.param = 'float32'\nmodel.dtype = 'float64'",
       "precision.param = \"float32\" with model.dtype = \"float64\"\n  --> run.toml:2  " + everything +
           "\n  fix: leave it out, or set precision.param = \"float64\""},
      {"precision.param = 'float64'\nmodel.dtype = 'bfloat16'",
       "model.dtype = \"bfloat16\" with precision.param = \"float64\"\n  --> run.toml:3  " + everything +
           "\n  fix: leave it out, or set model.dtype = \"float64\""},
      {"model.dtype = 'float16'\nprecision.accumulate = 'bfloat16'",
       "precision.accumulate = \"bfloat16\" with float16 weights\n  --> run.toml:3  float32, or the dtype of the "
       "weights\n  fix: set precision.accumulate = \"float32\", or model.dtype = \"bfloat16\""},
      {"precision.accumulate = 'bfloat16'",
       "precision.accumulate = \"bfloat16\" with auto weights\n  --> run.toml:2  float32, or the dtype of the "
       "weights\n  fix: set precision.accumulate = \"float32\", or model.dtype = \"bfloat16\""},
      {"precision.param = 'bfloat16'\nprecision.accumulate = 'float64'",
       "precision.accumulate = \"float64\" with bfloat16 weights\n  --> run.toml:3  float32, or the dtype of the "
       "weights\n  fix: set precision.accumulate = \"float32\", or precision.param = \"float64\""},
      {"model.dtype = 'bfloat16'\nprecision.master = 'bfloat16'",
       "precision.master = \"bfloat16\" with bfloat16 weights\n  --> run.toml:3  most updates are too small for 16 "
       "bits, and would be lost\n  fix: set precision.master = \"float32\""},
      {"precision.states = 'float16'",
       "precision.states = \"float16\" with auto weights\n  --> run.toml:2  squared gradients underflow in "
       "float16\n  fix: set precision.states = \"float32\" or \"bfloat16\""},
      {"model.dtype = 'float32'\nprecision.master = 'float64'",
       "precision.master = \"float64\" with float32 weights\n  --> run.toml:3  " + everything +
           "\n  fix: set precision.master = \"float32\", or model.dtype = \"float64\""},
      {"model.dtype = 'float32'\nprecision.states = 'float64'",
       "precision.states = \"float64\" with float32 weights\n  --> run.toml:3  " + everything +
           "\n  fix: set precision.states = \"float32\", or model.dtype = \"float64\""},
  };
  for (const Told& row : rows) EXPECT_EQ(error_of(kTiny + row.toml), row.message) << row.toml;
}

}  // namespace
}  // namespace trireme::config
