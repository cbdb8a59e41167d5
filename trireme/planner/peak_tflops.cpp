#include "trireme/planner/peak_tflops.hpp"

namespace trireme::planner {
namespace {

struct GpuPeak {
  std::string_view name;  // a part of CUDA's name; the first row that matches counts
  double bfloat16, float16, float32, float64;
};

// float32 without TF32, which libtorch does not use unless asked. Variants come before the GPU itself.
constexpr GpuPeak kPeaks[] = {
    {"B200", 2250, 2250, 75, 37},   {"GH200", 989, 989, 67, 67},     {"H200 NVL", 835, 835, 60, 60},
    {"H200", 989, 989, 67, 67},     {"H100 PCIe", 756, 756, 51, 51}, {"H100 NVL", 835, 835, 60, 60},
    {"H100", 989, 989, 67, 67},     {"H800", 989, 989, 67, 1},       {"A100", 312, 312, 19.5, 19.5},
    {"A800", 312, 312, 19.5, 19.5}, {"A30", 165, 165, 10.3, 10.3},   {"A40", 149.7, 149.7, 37.4, 0},
    {"A10", 125, 125, 31.2, 0},     {"L40S", 362, 362, 91.6, 0},     {"L40", 181, 181, 90.5, 0},
    {"L4", 121, 121, 30.3, 0},      {"V100-PCIE", 0, 112, 14, 7},    {"V100", 0, 125, 15.7, 7.8},
    {"T4", 0, 65, 8.1, 0},
};

}  // namespace

double peak_tflops(std::string_view gpu, std::string_view dtype) {
  if (gpu.find("MIG") != std::string_view::npos) return 0;  // a part of a GPU
  for (const GpuPeak& row : kPeaks) {
    const std::size_t at = gpu.find(row.name);
    if (at == std::string_view::npos) continue;
    // "A10" is not a part of "A1000".
    const std::size_t end = at + row.name.size();
    const auto continues = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z'); };
    if ((end < gpu.size() && continues(gpu[end])) || (at > 0 && continues(gpu[at - 1]))) continue;
    return dtype == "bfloat16"  ? row.bfloat16
           : dtype == "float16" ? row.float16
           : dtype == "float32" ? row.float32
           : dtype == "float64" ? row.float64
                                : 0;
  }
  return 0;
}

}  // namespace trireme::planner
