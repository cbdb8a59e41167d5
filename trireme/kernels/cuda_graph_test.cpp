#include "trireme/kernels/cuda_graph.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"

namespace trireme::kernels {
namespace {

TEST(CudaGraph, ReplaysWithNewInputs) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  use_own_stream(at::Device(at::kCUDA, 0));
  const at::Tensor x = at::ones({1000}, at::TensorOptions(at::kFloat).device(at::kCUDA));
  at::Tensor y;
  const auto work = [&] { y = (x * 3).sum(); };
  work();
  CudaGraph graph;
  EXPECT_THROW(graph.replay(), InternalError);
  graph.capture(work);
  EXPECT_GT(graph.peak_bytes(), 0);
  for (const double value : {1.0, 2.0, 5.0}) {
    x.fill_(value);
    graph.replay();
    EXPECT_EQ(y.item<double>(), 3000 * value);
  }
}

TEST(CudaGraph, WhatFailsInACaptureIsTold) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  use_own_stream(at::Device(at::kCUDA, 0));
  CudaGraph graph;
  const at::Tensor x = at::ones({4}, at::TensorOptions(at::kFloat).device(at::kCUDA));
  EXPECT_THROW(graph.capture([&] {
    x.mul_(2);
    throw DataError("no");
  }),
               DataError);
  EXPECT_EQ(x.sum().item<double>(), 4) << "the device works on";
}

}  // namespace
}  // namespace trireme::kernels
