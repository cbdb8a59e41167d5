#pragma once
// trace/operations/rankR.stepN.pt.trace.json.gz, as libtorch's profiler writes it (profiler.operations).
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace trireme::report {

/// All operations or kernels of one name.
struct OperationTime {
  std::string name;
  std::int64_t count = 0;
  double seconds = 0;  // of an operation: without those that it called
};

struct OperationTrace {
  int rank = 0;
  std::int64_t last_step = 0;
  double seconds = 0;                  // from the first event to the end of the last
  std::vector<OperationTime> host;     // by time, longest first
  std::vector<OperationTime> kernels;  // of the GPU, with its copies; likewise
  double gpu_busy_seconds = 0;         // at least one of them runs
};

/// DataError that names the file if it is not such a trace.
OperationTrace read_operation_trace(const std::filesystem::path& path);

}  // namespace trireme::report
