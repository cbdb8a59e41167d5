#pragma once
// GPUs and their connections, by data sheets, and how much of that programs reach. A CPU rank counts as a GPU.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::planner {

/// A GPU and its connections. Bandwidths are bytes/s in one direction.
struct Gpu {
  std::string name;           // "h100"
  double peak_flops = 0;      // dense, bfloat16
  double peak_fp8_flops = 0;  // 0: none
  double memory_bytes = 0;    // as CUDA reports it
  double memory_bandwidth = 0;
  double link_bandwidth = 0;     // to the other GPUs of a host (NVLink)
  double network_bandwidth = 0;  // to other hosts, per GPU
  int per_host = 8;
  /// Large products reach this part of the peak, under the power limit.
  double product_efficiency = 0.8;
};

/// ConfigError that lists the names, for one that is not known.
Gpu gpu_named(std::string_view name);
std::vector<std::string> gpu_names();
/// Of a GPU as CUDA names it: "NVIDIA H200". Empty for variants with other bandwidths, and for what is not known.
std::optional<Gpu> find_gpu(std::string_view device_name);

/// What of a data sheet programs reach: one set for all GPUs, fitted to published runs (docs/planning.md).
struct Reach {
  /// A product runs at half speed if one of its dimensions is as small as this: rows, columns, and what is summed over.
  double half_rows = 414, half_columns = 314, half_depth = 50;
  double attention = 0.305;  // FlashAttention 2 with heads of 128, of the speed of large products
  double memory = 0.85;      // of the bandwidth, in kernels that go once over their tensors
  double link = 0.578, network = 0.9;
  double step_s = 28e-6;             // latency of a step of a ring
  double network_step_s = 0.243e-3;  // more for a step from host to host
  double fp8_gain = 1.75;            // speed of products in fp8
  double fp8_traffic = 1.2;          // more memory traffic beside them: what is rounded
  double straggler = 0.001;          // more time per doubling of hosts: the slowest rank decides
};

/// Several hosts of the same kind.
struct Machine {
  Gpu gpu;
  int gpus = 1;
  Reach reach = {};

  bool is_cpu() const { return gpu.name == "cpu"; }
  int hosts() const { return (gpus + gpu.per_host - 1) / gpu.per_host; }
  int per_host() const { return gpus < gpu.per_host ? gpus : gpu.per_host; }
};

/// Ranks that communicate: how many, and how many of them share a host.
struct RankGroup {
  int size = 1, in_host = 1;
  int hosts() const { return (size + in_host - 1) / in_host; }
};

/// Seconds to all-gather or reduce-scatter `bytes` (of the whole tensor) in a ring.
double ring_seconds(double bytes, const RankGroup& ranks, const Machine& machine);
/// Seconds to all-reduce `bytes`: twice that in a ring, or in a tree, whose latency grows with the logarithm of ranks.
double all_reduce_seconds(double bytes, const RankGroup& ranks, const Machine& machine);
/// Seconds for an all-to-all in which a rank sends `bytes`, its own part included.
double all_to_all_seconds(double bytes, const RankGroup& ranks, const Machine& machine);
/// Seconds to send `bytes` to a rank of this host or of another one.
double send_seconds(double bytes, bool same_host, const Machine& machine);

}  // namespace trireme::planner
