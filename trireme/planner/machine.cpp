#include "trireme/planner/machine.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "trireme/base/error.hpp"
#include "trireme/planner/peak_tflops.hpp"

namespace trireme::planner {
namespace {

constexpr double kTera = 1e12, kGiga = 1e9;

double peak(std::string_view name) { return peak_tflops(name, "bfloat16") * kTera; }

const std::vector<Gpu>& known_gpus() {
  static const std::vector<Gpu> gpus = {
      {"a100", peak("A100"), 0, 84.9 * kGiga, 2039 * kGiga, 300 * kGiga, 25 * kGiga, 8, 0.98},
      {"a100-40", peak("A100"), 0, 42.3 * kGiga, 1555 * kGiga, 300 * kGiga, 25 * kGiga, 8, 0.98},
      {"h100", peak("H100"), 1979 * kTera, 84.9 * kGiga, 3350 * kGiga, 450 * kGiga, 50 * kGiga, 8, 0.75},
      {"h200", peak("H200"), 1979 * kTera, 150.1 * kGiga, 4800 * kGiga, 450 * kGiga, 50 * kGiga, 8, 0.75},
      {"b200", peak("B200"), 4500 * kTera, 191.5 * kGiga, 8000 * kGiga, 900 * kGiga, 50 * kGiga, 8, 0.529},
      {"gb200", 2500 * kTera, 5000 * kTera, 197.6 * kGiga, 8000 * kGiga, 900 * kGiga, 50 * kGiga, 72, 0.529},
  };
  return gpus;
}

bool crosses_hosts(const RankGroup& ranks) { return ranks.size > ranks.in_host; }

/// Of a rank of the group. All ranks of a host share its network, and each group has the part of its own ranks.
double bandwidth(const RankGroup& ranks, const Machine& machine) {
  const double link = machine.gpu.link_bandwidth * machine.reach.link;
  return crosses_hosts(ranks) ? std::min(link, machine.gpu.network_bandwidth * machine.reach.network * ranks.in_host)
                              : link;
}

double latency(const RankGroup& ranks, const Machine& machine) {
  return (ranks.size - 1) * machine.reach.step_s + (ranks.hosts() - 1) * machine.reach.network_step_s;
}

}  // namespace

Gpu gpu_named(std::string_view name) {
  std::string wanted(name);
  std::ranges::transform(wanted, wanted.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const Gpu& gpu : known_gpus())
    if (gpu.name == wanted) return gpu;
  std::string known;
  for (const std::string& each : gpu_names()) known += (known.empty() ? "" : ", ") + each;
  throw ConfigError(text("--gpu ", name, ": not known\n  fix: one of ", known,
                         "; for others --gpu-tflops, --gpu-memory-gb and --network-gb-s beside the nearest of them"));
}

std::vector<std::string> gpu_names() {
  std::vector<std::string> out;
  for (const Gpu& gpu : known_gpus()) out.push_back(gpu.name);
  return out;
}

std::optional<Gpu> find_gpu(std::string_view device_name) {
  const auto has = [&](std::string_view word) { return device_name.find(word) != std::string_view::npos; };
  for (const char* other : {"PCIe", "NVL", "MIG", "GH200"})
    if (has(other)) return std::nullopt;
  for (const auto& [word, name] : {std::pair{"GB200", "gb200"}, {"B200", "b200"}, {"H200", "h200"}, {"H100", "h100"}})
    if (has(word)) return gpu_named(name);
  if (has("A100")) return gpu_named(has("40GB") ? "a100-40" : "a100");
  return std::nullopt;
}

double ring_seconds(double bytes, const RankGroup& ranks, const Machine& machine) {
  if (ranks.size < 2) return 0;
  return bytes * (ranks.size - 1) / ranks.size / bandwidth(ranks, machine) + latency(ranks, machine);
}

double all_reduce_seconds(double bytes, const RankGroup& ranks, const Machine& machine) {
  if (ranks.size < 2) return 0;
  const double tree = 2 * bytes / bandwidth(ranks, machine) +
                      2 * std::ceil(std::log2(ranks.size)) * machine.reach.step_s +
                      2 * std::ceil(std::log2(ranks.hosts())) * machine.reach.network_step_s;
  return std::min(tree, 2 * ring_seconds(bytes, ranks, machine));
}

double all_to_all_seconds(double bytes, const RankGroup& ranks, const Machine& machine) {
  if (ranks.size < 2) return 0;
  const double inside = bytes * (ranks.in_host - 1) / ranks.size,
               outside = bytes * (ranks.size - ranks.in_host) / ranks.size;
  return std::max(inside / (machine.gpu.link_bandwidth * machine.reach.link),
                  outside / (machine.gpu.network_bandwidth * machine.reach.network)) +
         latency({.size = 2, .in_host = crosses_hosts(ranks) ? 1 : 2}, machine);
}

double send_seconds(double bytes, bool same_host, const Machine& machine) {
  return same_host ? bytes / (machine.gpu.link_bandwidth * machine.reach.link) + machine.reach.step_s
                   : bytes / (machine.gpu.network_bandwidth * machine.reach.network) + machine.reach.step_s +
                         machine.reach.network_step_s;
}

}  // namespace trireme::planner
