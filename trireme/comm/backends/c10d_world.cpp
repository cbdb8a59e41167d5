#include "trireme/comm/backends/c10d_world.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <mutex>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "trireme/comm/store/store_client.hpp"

namespace trireme {
namespace {

std::shared_ptr<FlightRecorder> recorder_of(const C10dPlace& place) {
  return std::make_shared<FlightRecorder>(place.rank, place.size, place.black_box);
}

/// A separate client: a wait in one thread must not block the other, and a store that does not respond must not block
/// the error that names the missing ranks.
c10::intrusive_ptr<c10d::Store> own_client(const C10dPlace& place, double timeout_s) {
  const double patience = std::clamp(timeout_s, 5.0, 10.0);
  auto store =
      with_retries(std::chrono::steady_clock::now() + std::chrono::seconds(5), [&] { return place.store->clone(); });
  store->setTimeout(std::chrono::milliseconds(static_cast<std::int64_t>(1000 * patience)));
  return store;
}

/// libtorch's own flight recorder is one per process, and adds a process group to its map before it takes its lock:
/// ranks that are threads, or threads that use different groups, would crash in it. We have one per rank (comm/calls).
/// It reads its size when the first group is made.
void turn_off_flight_recorder_of_libtorch() {
  static std::once_flag once;
  std::call_once(once, [] { ::setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/0); });
}

}  // namespace

C10dWorld::C10dWorld(C10dPlace place, CommOptions options)
    : World(place.rank, place.size, std::move(options), recorder_of(place)),
      place_(std::move(place)),
      device_(gloo_device(place_.address, place_.interface)),
      watchdog_(std::make_shared<Watchdog>(own_client(place_, this->options().timeout_s), shared_recorder(), size(),
                                           this->options(), place_.lifeline_fd)) {
  turn_off_flight_recorder_of_libtorch();
  if (place_.backend == BackendKind::gloo && size() > 1)
    shared_memory_.emplace(place_.store, rank(), place_.shares_memory, place_.spins);
}

c10::intrusive_ptr<c10d::Store> C10dWorld::store_of(const Membership& members, const char* use) const {
  // A separate prefix per group: with a common prefix two groups would mix up their addresses.
  std::string prefix = text("group/", members.name, "/", use);
  for (int r : members.world_ranks) prefix += text("/", r);
  return c10::make_intrusive<c10d::PrefixStore>(prefix, place_.store);
}

c10::intrusive_ptr<c10d::Backend> C10dWorld::checks_of(const Membership& members) const {
  if (options().check != CheckMode::strict) return nullptr;
  return gloo_backend(store_of(members, "checks"), members.rank, members.size(), device_, options());
}

std::unique_ptr<GlooGroup> C10dWorld::connect_gloo(Membership members,
                                                   const std::shared_ptr<gloo::transport::Device>& device) const {
  auto backend = gloo_backend(store_of(members, "gloo"), members.rank, members.size(), device, options());
  auto checks = checks_of(members);
  return std::make_unique<GlooGroup>(std::move(members), shared_recorder(), options(), std::move(backend),
                                     std::move(checks), watchdog_);
}

/// nullptr: not all members can.
std::unique_ptr<Group> C10dWorld::connect_shared_memory(const Membership& members) {
  if (!shared_memory_) return nullptr;
  auto group =
      shared_memory_->connect(members, *store_of(members, "shared_memory"), shared_recorder(), options(), watchdog_);
  if (group == nullptr) shared_memory_->move_in_background();
  return group;
}

std::unique_ptr<Group> C10dWorld::connect(Membership members) {
  if (auto group = connect_shared_memory(members)) return group;
  if (place_.backend == BackendKind::gloo) return connect_gloo(std::move(members), device_);
  auto checks = checks_of(members);
  auto store = store_of(members, "nccl");
  return connect_nccl(std::move(members), shared_recorder(), options(), store, place_.device, std::move(checks),
                      watchdog_);
}

std::unique_ptr<Group> C10dWorld::connect_control(Membership members) {
  if (auto group = connect_shared_memory(members)) return group;
  if (members.size() <= options().full_mesh_ranks) return connect_gloo(std::move(members), device_);
  auto control = connect_gloo(std::move(members), gloo_device(place_.address, place_.interface, /*lazy=*/true));
  control->sum_counters_in_rounds();
  return control;
}

}  // namespace trireme
