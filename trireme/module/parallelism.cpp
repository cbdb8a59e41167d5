#include "trireme/module/parallelism.hpp"

#include <ATen/Context.h>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

std::vector<at::Device> found_devices() {
  std::vector<at::Device> out;
  const auto gpus = at::hasCUDA() ? at::getNumGPUs() : 0;
  for (std::size_t i = 0; i < gpus; ++i) out.emplace_back(at::kCUDA, static_cast<at::DeviceIndex>(i));
  if (out.empty()) out.emplace_back(at::kCPU);
  return out;
}

}  // namespace

std::vector<at::Device> devices_of(const Parallelism& parallel) {
  std::vector<at::Device> all = parallel.devices.value_or(found_devices());
  require<ConfigError>(!all.empty(), "Parallelism: the list of devices is empty\n",
                       "  fix: leave it out for all devices, or name at least one");
  const auto count = static_cast<int>(all.size());
  require<ConfigError>(parallel.nb_device <= count, "Parallelism: nb_device ", parallel.nb_device, " of ", count,
                       " devices\n  fix: at most ", count, ", or 0 for all; name a device several times to share it");
  const auto gpus = at::hasCUDA() ? static_cast<int>(at::getNumGPUs()) : 0;
  for (const at::Device& device : all)
    require<ConfigError>(device.is_cpu() || (device.is_cuda() && device.index() < gpus), "Parallelism: device ",
                         device.str(), " does not exist: there are ", gpus, " GPUs");
  if (parallel.nb_device > 0) all.resize(static_cast<std::size_t>(parallel.nb_device), at::Device(at::kCPU));
  return all;
}

std::string str(const Parallelism& parallel) {
  const std::size_t count = devices_of(parallel).size();
  const std::string on = text(" on ", count, count == 1 ? " device" : " devices");
  if (parallel.p_type == ParallelismType::PIPELINE) return "pipeline" + on;
  static constexpr const char* kNames[] = {"no_shard", "shard_grad_op", "full_shard"};
  return text("FSDP (", kNames[static_cast<int>(parallel.config_fsdp.sharding)], ")", on);
}

}  // namespace trireme
