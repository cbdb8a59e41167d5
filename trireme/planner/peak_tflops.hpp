#pragma once
// The dense peak of known GPUs, for MFU.
#include <string_view>

namespace trireme::planner {

/// TFLOP/s without sparsity, by the data sheets, of a GPU as CUDA names it ("NVIDIA H200") in the dtype of the matmuls
/// ("bfloat16", "float16", "float32", "float64"). 0: not known.
double peak_tflops(std::string_view gpu, std::string_view dtype);

}  // namespace trireme::planner
