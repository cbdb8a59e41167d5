#include "trireme/planner/peak_tflops.hpp"

#include <gtest/gtest.h>

namespace trireme::planner {
namespace {

TEST(PeakTflops, IsThatOfTheVariant) {
  EXPECT_EQ(peak_tflops("NVIDIA H200", "bfloat16"), 989);
  EXPECT_EQ(peak_tflops("NVIDIA H200", "float32"), 67);
  EXPECT_EQ(peak_tflops("NVIDIA H100 80GB HBM3", "float16"), 989);
  EXPECT_EQ(peak_tflops("NVIDIA H100 PCIe", "bfloat16"), 756);
  EXPECT_EQ(peak_tflops("NVIDIA GH200 480GB", "bfloat16"), 989);
  EXPECT_EQ(peak_tflops("NVIDIA A100-SXM4-80GB", "bfloat16"), 312);
  EXPECT_EQ(peak_tflops("NVIDIA A10", "bfloat16"), 125);
  EXPECT_EQ(peak_tflops("Tesla V100-SXM2-16GB", "float16"), 125);
  EXPECT_EQ(peak_tflops("Tesla V100-PCIE-16GB", "float16"), 112);
}

TEST(PeakTflops, OfWhatIsNotKnownIsNone) {
  for (const char* name : {"", "NVIDIA A10G", "NVIDIA RTX A1000", "NVIDIA L400", "AMD Instinct MI300X", "XH200",
                           "NVIDIA A100-SXM4-40GB MIG 1g.5gb"})
    EXPECT_EQ(peak_tflops(name, "bfloat16"), 0) << name;
  EXPECT_EQ(peak_tflops("Tesla V100-SXM2-16GB", "bfloat16"), 0) << "it has no bfloat16";
  EXPECT_EQ(peak_tflops("NVIDIA H200", "int8"), 0);
}

}  // namespace
}  // namespace trireme::planner
