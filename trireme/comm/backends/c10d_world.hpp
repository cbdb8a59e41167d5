#pragma once
// World over c10d: the ranks of a job as processes (or threads that share a store), with Gloo or NCCL groups.
#include <memory>
#include <optional>
#include <string>

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trireme/comm/backends/gloo_group.hpp"
#include "trireme/comm/backends/shared_memory/shared_memory_host.hpp"
#include "trireme/comm/watch/watchdog.hpp"
#include "trireme/comm/world.hpp"

namespace trireme {

enum class BackendKind { gloo, nccl };

/// The rank of this process, and how the ranks find each other.
struct C10dPlace {
  c10::intrusive_ptr<c10d::Store> store;  // shared by all ranks
  int rank = 0, size = 1;
  BackendKind backend = BackendKind::gloo;
  at::Device device = at::kCPU;       // of this rank; NCCL needs a GPU
  std::string address = "127.0.0.1";  // of this host, as seen by the others
  std::string interface{};            // or the network interface to use
  /// Gloo only: ranks of one host use memory that they share instead, where all ranks of a group can.
  bool shares_memory = false;
  bool spins = false;                 // with shared memory: Progress
  FlightRecord* black_box = nullptr;  // flight record from the launcher, or null
  int lifeline_fd = -1;               // from the launcher, or -1
};

class C10dWorld final : public World {
 public:
  C10dWorld(C10dPlace place, CommOptions options);

  Watchdog& watchdog() { return *watchdog_; }

 protected:
  std::unique_ptr<Group> connect(Membership members) override;
  std::unique_ptr<Group> connect_control(Membership members) override;
  std::optional<at::Device> only_device() const override {
    return place_.backend == BackendKind::nccl ? std::optional(place_.device) : std::nullopt;
  }

 private:
  std::unique_ptr<Group> connect_shared_memory(const Membership& members);
  std::unique_ptr<GlooGroup> connect_gloo(Membership members,
                                          const std::shared_ptr<gloo::transport::Device>& device) const;
  c10::intrusive_ptr<c10d::Backend> checks_of(const Membership& members) const;
  c10::intrusive_ptr<c10d::Store> store_of(const Membership& members, const char* use) const;

  const C10dPlace place_;
  const std::shared_ptr<gloo::transport::Device> device_;
  const std::shared_ptr<Watchdog> watchdog_;
  std::optional<SharedMemoryHost> shared_memory_;
};

/// In nccl_group.cpp if torch has CUDA, else in no_nccl.cpp, which throws.
std::unique_ptr<Group> connect_nccl(Membership members, const std::shared_ptr<FlightRecorder>& recorder,
                                    const CommOptions& options, const c10::intrusive_ptr<c10d::Store>& store,
                                    at::Device device, c10::intrusive_ptr<c10d::Backend> checks,
                                    std::shared_ptr<Watchdog> watchdog);

}  // namespace trireme
