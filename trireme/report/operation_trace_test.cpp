#include "trireme/report/operation_trace.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/base/file_output.hpp"
#include "trireme/testing/temp_folder.hpp"

namespace trireme::report {
namespace {

std::string event(const std::string& category, const std::string& name, int begin, int length, int thread = 1) {
  return text(R"({"ph": "X", "cat": ")", category, R"(", "name": ")", name, R"(", "ts": )", begin, R"(, "dur": )",
              length, R"(, "pid": 7, "tid": )", thread, "},\n");
}

OperationTrace read(const std::string& events) {
  const TempFolder folder;
  const auto path = folder.path() / "rank0.step3.pt.trace.json";
  replace_file(path, "{\"traceEvents\": [\n" + events + "{\"ph\": \"M\"}]}");
  return read_operation_trace(path);
}

TEST(OperationTrace, AnOperationIsCountedWithoutThoseItCalled) {
  const OperationTrace trace =
      read(event("cpu_op", "aten::linear", 0, 100) + event("cpu_op", "aten::mm", 10, 60) +
           event("cpu_op", "aten::empty", 20, 5) + event("cpu_op", "aten::mm", 80, 10) +
           event("cpu_op", "aten::add", 40, 30, 2) + event("user_annotation", "gloo:all_reduce", 0, 1000));
  EXPECT_NEAR(trace.seconds, 100e-6, 1e-12);
  ASSERT_EQ(trace.host.size(), 4u);
  EXPECT_EQ(trace.host[0].name, "aten::mm");
  EXPECT_EQ(trace.host[0].count, 2);
  EXPECT_NEAR(trace.host[0].seconds, 65e-6, 1e-12);
  EXPECT_EQ(trace.host[1].name, "aten::add") << "of another thread, longer than what linear does itself";
  EXPECT_EQ(trace.host[2].name, "aten::linear");
  EXPECT_NEAR(trace.host[2].seconds, 30e-6, 1e-12);
  EXPECT_TRUE(trace.kernels.empty());
}

TEST(OperationTrace, TheGpuIsBusyWhileAnyKernelRuns) {
  const OperationTrace trace =
      read(event("kernel", "gemm", 0, 50, 1) + event("kernel", "gemm", 40, 20, 2) +
           event("gpu_memcpy", "Memcpy HtoD", 80, 10, 1) + event("cpu_op", "aten::mm", 0, 100));
  EXPECT_NEAR(trace.gpu_busy_seconds, 70e-6, 1e-12);
  ASSERT_EQ(trace.kernels.size(), 2u);
  EXPECT_EQ(trace.kernels[0].count, 2);
  EXPECT_NEAR(trace.kernels[0].seconds, 70e-6, 1e-12);
}

TEST(OperationTrace, WhatIsNoTraceIsNamed) {
  const TempFolder folder;
  const auto path = folder.path() / "x.json";
  for (const char* contents : {"", "[]", "{", R"({"traceEvents": 3})"}) {
    replace_file(path, contents);
    EXPECT_THROW(read_operation_trace(path), DataError) << contents;
  }
  EXPECT_EQ(read("").seconds, 0);
  const std::string deep(100'000, '['), close(100'000, ']');
  EXPECT_TRUE(read(text(R"({"ph": )", deep, close, R"(, "cat": "cpu_op", "name": "x", "tid": 1},)")).host.empty());
  EXPECT_EQ(read(text(R"({"ph": "X", "cat": "cpu_op", "name": "x", "tid": )", deep, close, "},")).host.size(), 1u);
  EXPECT_TRUE(read(R"({"ph": "X", "cat": 3, "name": [], "ts": "x"}, {"ph": "X"}, 5,)").host.empty());
}

}  // namespace
}  // namespace trireme::report
