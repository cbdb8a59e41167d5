#include "trireme/comm/backends/shared_memory/shared_memory_host.hpp"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <random>
#include <sstream>
#include <system_error>

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

/// Of a larger group each rank would map more cursors than a call has bytes.
constexpr int kMostRanks = 128;

/// Empty if it cannot be told.
std::string this_host() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat pids{}, network{};
  if (boot.empty() || ::stat("/proc/self/ns/pid", &pids) != 0 || ::stat("/proc/self/ns/net", &network) != 0) return "";
  return text(boot, "/", pids.st_ino, "/", network.st_ino);
}

std::string key_of(int rank) { return text("shared_memory/", rank); }

}  // namespace

SharedMemoryHost::SharedMemoryHost(c10::intrusive_ptr<c10d::Store> store, int rank, bool shares, bool spins)
    : store_(std::move(store)), rank_(rank) {
  const std::string host = shares ? this_host() : "";
  std::string place = text("0 -1 0 0 rank", rank);
  if (!host.empty()) try {
      SharedMemory memory("the doorbell of a rank", sizeof(BellPage));
      BellPage& page = *reinterpret_cast<BellPage*>(memory.data());
      std::random_device random;
      for (std::uint64_t& word : page.mark) word = (std::uint64_t{random()} << 32) | random();
      place = text(::getpid(), " ", memory.fd(), " ", page.mark[0], " ", page.mark[1], " ", host);
      progress_ = std::make_shared<Progress>(std::move(memory), spins);
    } catch (const std::exception&) {  // no descriptor or no memory for it: Gloo needs neither
    }
  store_->set(key_of(rank), place);
}

const SharedMemoryHost::Place& SharedMemoryHost::place_of(int rank) {
  const auto known = places_.find(rank);
  if (known != places_.end()) return known->second;
  Place place;
  std::istringstream words(store_->get_to_str(key_of(rank)));
  require(static_cast<bool>(words >> place.pid >> place.bell_fd >> place.mark[0] >> place.mark[1] >> place.host),
          "rank ", rank, " wrote no place to the store");
  return places_[rank] = place;
}

std::shared_ptr<SharedMemoryPeer> SharedMemoryHost::peer(int rank) {
  std::shared_ptr<SharedMemoryPeer>& known = peers_[rank];
  if (known != nullptr) return known;
  const Place& place = place_of(rank);
  auto peer = std::make_shared<SharedMemoryPeer>();
  peer->pid = place.pid;
  peer->process = OwnedFd(static_cast<int>(::syscall(SYS_pidfd_open, place.pid, 0)));
  if (!peer->process) throw std::system_error(errno, std::generic_category(), text("process ", place.pid));
  peer->memory = SharedMemory::of_process(place.pid, place.bell_fd, sizeof(BellPage));
  if (!std::ranges::equal(peer->page().mark, place.mark))
    throw std::system_error(ESRCH, std::generic_category(), text("process ", place.pid, " is not rank ", rank));
  return known = peer;
}

/// The memory of the group, if this rank can use it, and reach all others.
std::optional<GroupMemory> SharedMemoryHost::memory_of(const Membership& members, c10d::Store& store) {
  const bool makes_it = members.rank == 0;
  std::optional<GroupMemory> memory;
  const std::size_t bytes = GroupMemory::bytes(members.size());
  int fd = -1;
  if (!makes_it) fd = std::atoi(store.get_to_str("memory").c_str());
  try {
    for (const int rank : members.world_ranks)
      if (rank != rank_) peer(rank);
    if (makes_it) memory.emplace(SharedMemory("the memory of a group", bytes), 0, members.size());
    if (fd >= 0)
      memory.emplace(SharedMemory::of_process(place_of(members.world_ranks.front()).pid, fd, bytes), members.rank,
                     members.size());
  } catch (const std::exception&) {
    memory.reset();
  }
  if (makes_it) store.set("memory", std::to_string(memory ? memory->memory().fd() : -1));
  return memory;
}

std::unique_ptr<Group> SharedMemoryHost::connect(const Membership& members, c10d::Store& store,
                                                 const std::shared_ptr<FlightRecorder>& recorder,
                                                 const CommOptions& options,
                                                 const std::shared_ptr<Watchdog>& watchdog) {
  if (!progress_ || members.size() > kMostRanks) return nullptr;
  const std::string& host = place_of(members.world_ranks.front()).host;
  for (const int rank : members.world_ranks)
    if (place_of(rank).host != host) return nullptr;

  std::optional<GroupMemory> memory = memory_of(members, store);
  const auto can = [](int rank) { return text("can/", rank); };
  bool all_can = memory.has_value();
  if (members.rank == 0) {
    for (int r = 1; r < members.size(); ++r) all_can = store.get_to_str(can(r)) == "yes" && all_can;
    store.set("all", all_can ? "yes" : "no");
    if (memory) memory->close_fd();
  } else {
    store.set(can(members.rank), all_can ? "yes" : "no");
    all_can = store.get_to_str("all") == "yes" && all_can;
  }
  if (!all_can) return nullptr;

  std::vector<std::shared_ptr<SharedMemoryPeer>> peers;
  for (const int rank : members.world_ranks) peers.push_back(rank == rank_ ? nullptr : peer(rank));
  return std::make_unique<SharedMemoryGroup>(members, recorder, options, std::move(*memory), std::move(peers),
                                             progress_, watchdog);
}

}  // namespace trireme
