#include "trireme/runtime/rank/parallel_context.hpp"

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "trireme/base/cgroup_facts.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/process_limits.hpp"
#include "trireme/base/ranks_of_job.hpp"
#include "trireme/config/schema/choices.hpp"
#include "trireme/runtime/environment/own_address.hpp"
#include "trireme/runtime/environment/port_owner.hpp"
#include "trireme/runtime/environment/rendezvous.hpp"
#include "trireme/runtime/rank/gpu_name.hpp"
#include "trireme/runtime/rank/libtorch_facts.hpp"
#include "trireme/runtime/rank/startup_check.hpp"
#include "trireme/runtime/rank/uncaught.hpp"

namespace trireme {
namespace {

Grid grid_of(const ParallelSizes& s) {
  return Grid::dense({.pp = s.pipeline_parallel_size,
                      .dp = s.data_parallel_size,
                      .cp = s.context_parallel_size,
                      .tp = s.tensor_parallel_size},
                     s.order);
}

BackendKind backend_of(const std::string& name, bool on_gpu) {
  switch (config::parse_comm_backend(name)) {
    case config::CommBackend::gloo: return BackendKind::gloo;
    case config::CommBackend::nccl: return BackendKind::nccl;
    case config::CommBackend::automatic: break;
  }
  return on_gpu ? BackendKind::nccl : BackendKind::gloo;
}

/// The flight record from the launcher, or nullptr.
FlightRecord* shared_black_box(const Variables& variables) {
  const auto fd = number_of(variables, "TRIREME_BLACK_BOX_FD", 0, 1 << 20);
  if (!fd) return nullptr;
  void* memory = mmap(nullptr, sizeof(FlightRecord), PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
  return memory == MAP_FAILED ? nullptr
                              : static_cast<FlightRecord*>(memory);  // without it only the failure report has less
}

/// NCCL rejects two ranks on one GPU, unless it believes that they are on different hosts. It reads these variables
/// when the first communicator is created. Everything then goes through sockets, which is only for tests.
void share_the_gpu(const Environment& env) {
  setenv("NCCL_HOSTID", text("trireme-rank-", env.rank).c_str(), 0);
  if (env.num_nodes == 1) setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  if (env.rank == 0)
    std::cerr << "warning: comm.share_gpu, and ranks have the same GPU: NCCL uses neither NVLink nor InfiniBand\n"
              << std::flush;
}

Fingerprint whole_fingerprint(const ParallelSizes& sizes, const ContextOptions& options) {
  Fingerprint f = fingerprint_of_process();
  f["layout"] = text(grid_of(sizes).str(), " ep=", sizes.expert_parallel_size,
                     " expert_tp=", sizes.expert_tensor_parallel_size, " order=", sizes.order);
  f["comm.backend"] = options.backend;
  f["comm.check"] = std::to_string(static_cast<int>(options.comm.check));
  f["comm.deterministic"] = options.comm.deterministic ? "true" : "false";
  f["comm.timeout_s"] = std::to_string(options.comm.timeout_s);
  f.insert(options.fingerprint.begin(), options.fingerprint.end());
  return f;
}

/// Threads of a rank besides libtorch's own: of Gloo, the watchdog, the store and autograd.
constexpr int kThreadsBesides = 12;

std::optional<Grid> experts_of(const ParallelSizes& sizes) {
  if (sizes.expert_parallel_size == 1 && sizes.expert_tensor_parallel_size == 0) return std::nullopt;
  return expert_view(grid_of(sizes), sizes.expert_parallel_size, sizes.expert_tensor_parallel_size);
}

/// The ranks of torchrun do not notice that its agent was killed, and would go on without anybody to end them. The
/// signal is a stop request: a training saves first. Ranks of our own launcher have a lifeline.
void stop_with_agent(const Environment& environment) {
  if (environment.launcher != "torchrun") return;
  const pid_t agent = ::getppid();
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != agent) ::raise(SIGTERM);  // it died before the line above
}

}  // namespace

at::Device device_of_rank(int rank, int num_gpus) {
  return num_gpus > 0 ? at::Device(at::kCUDA, static_cast<at::DeviceIndex>(rank % num_gpus)) : at::Device(at::kCPU);
}

ContextOptions context_options(const CommConfig& comm) {
  ContextOptions options;
  options.backend = comm.backend;
  options.shared_memory = comm.shared_memory;
  options.share_gpu = comm.share_gpu;
  options.comm = {.check = comm.check == "off"      ? CheckMode::off
                           : comm.check == "strict" ? CheckMode::strict
                                                    : CheckMode::fast,
                  .deterministic = comm.deterministic,
                  .timeout_s = comm.timeout_s,
                  .init_timeout_s = comm.init_timeout_s};
  return options;
}

ParallelContext::ParallelContext(const ParallelSizes& sizes, const Environment& environment, const Variables& variables,
                                 const ContextOptions& options)
    : environment_(environment), device_(device_of_rank(environment.local_rank, visible_gpus())) {
  stop_with_agent(environment);
  require(environment.start_local_ranks == 0, "this process represents a node (", environment.how, "): it must start ",
          environment.start_local_ranks, " ranks");
  const Grid grid = grid_of(sizes);
  require<ConfigError>(grid.size() == environment.world_size, "the layout ", grid.str(), " needs ", grid.size(),
                       grid.size() == 1 ? " rank, " : " ranks, ", environment.world_size,
                       environment.world_size == 1 ? " was" : " were", " started\n  launch: ", environment.how);
  const std::string who = text("rank ", environment.rank, " of ", environment.world_size);
  const BackendKind backend = backend_of(options.backend, device_.is_cuda());
  need_descriptors(descriptors_of_rank(environment.world_size, backend == BackendKind::nccl), who);
  // The variable itself too: some OpenMP libraries use fewer threads without a word.
  const int asked = std::atoi(value_of(variables, "OMP_NUM_THREADS").c_str());  // "4" or "4,2"
  check_thread_count(std::max(asked, at::get_num_threads()), "OMP_NUM_THREADS");
  std::optional<ThreadReserve> reserve(std::in_place, at::get_num_threads() + kThreadsBesides, who);
  require<ConfigError>(backend != BackendKind::nccl || device_.is_cuda(),
                       "comm.backend = \"nccl\", and this host has no visible GPU\n  fix: comm.backend = \"gloo\"");
  if (device_.is_cuda()) c10::impl::VirtualGuardImpl(at::kCUDA).setDevice(device_);

  // A launcher sets the folder for the flight records of its ranks.
  CommOptions comm = options.comm;
  if (is_set(variables, "TRIREME_HANG_FOLDER")) comm.hang_folder = value_of(variables, "TRIREME_HANG_FOLDER");
  const StorePtr store = join_store(environment, options.comm);
  RankDevice device;
  if (backend == BackendKind::nccl) device = {.id = gpu_uuid(device_.index()), .is_shared = options.share_gpu};
  const StartupResult started = check_startup(store, environment.rank, environment.world_size,
                                              whole_fingerprint(sizes, options), options.comm, device);
  if (started.devices_are_shared) share_the_gpu(environment);
  reserve.reset();  // all ranks of this host have held theirs
  const std::string interface = value_of(variables, "GLOO_SOCKET_IFNAME");
  world_ = std::make_unique<C10dWorld>(
      C10dPlace{.store = store,
                .rank = environment.rank,
                .size = environment.world_size,
                .backend = backend,
                .device = device_,
                .address = interface.empty() ? own_address(environment) : "",
                .interface = interface,
                .shares_memory = options.shared_memory && !device_.is_cuda(),
                .spins = environment.local_world_size <= usable_cores(),
                .black_box = shared_black_box(variables),
                .lifeline_fd = number_of(variables, "TRIREME_LIFELINE_FD", 0, 1 << 20).value_or(-1)},
      comm);
  end_process_on_uncaught_exceptions(&world_->watchdog());
  mesh_ = std::make_unique<Mesh>(grid, *world_, options.also, experts_of(sizes));
  parallel_context_begins(environment.world_size);
}

ParallelContext::ParallelContext(int tensor_parallel_size, int data_parallel_size, int pipeline_parallel_size,
                                 const Variables& variables)
    : ParallelContext({.tensor_parallel_size = tensor_parallel_size,
                       .data_parallel_size = data_parallel_size,
                       .pipeline_parallel_size = pipeline_parallel_size},
                      detect_environment(variables, {}, visible_gpus()), variables) {}

ParallelContext::~ParallelContext() {
  forget_watchdog(&world_->watchdog());
  parallel_context_ends();
}

}  // namespace trireme
