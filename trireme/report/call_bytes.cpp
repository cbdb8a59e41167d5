#include "trireme/report/call_bytes.hpp"

namespace trireme::report {

std::optional<double> sent_bytes(const TracedCall& call, int ranks, bool is_root) {
  if (!call.bytes || ranks < 1) return std::nullopt;
  const auto bytes = static_cast<double>(*call.bytes), n = static_cast<double>(ranks);
  if (call.op == "all_reduce") return 2 * bytes * (n - 1) / n;
  if (call.op == "all_gather") return bytes * (n - 1);  // of the input
  if (call.op == "reduce_scatter" || call.op == "all_to_all") return bytes * (n - 1) / n;
  if (call.op == "broadcast") return is_root ? bytes : 0;
  if (call.op == "reduce" || call.op == "gather") return is_root ? 0 : bytes;
  if (call.op == "scatter") return is_root ? bytes * (n - 1) : 0;  // of the output
  if (call.op == "send") return bytes;
  return 0;
}

std::optional<double> bus_bytes(const TracedCall& call, int ranks) {
  if (!call.bytes || ranks < 2) return std::nullopt;
  const auto bytes = static_cast<double>(*call.bytes), n = static_cast<double>(ranks);
  if (call.op == "all_reduce") return bytes * 2 * (n - 1) / n;
  if (call.op == "all_gather" || call.op == "gather" || call.op == "scatter") return bytes * (n - 1);
  if (call.op == "reduce_scatter" || call.op == "all_to_all") return bytes * (n - 1) / n;
  if (call.op == "broadcast" || call.op == "reduce" || call.op == "send" || call.op == "recv") return bytes;
  return std::nullopt;
}

}  // namespace trireme::report
