#include "trireme/runtime/rank/rendezvous.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <future>
#include <memory>
#include <thread>

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "trireme/base/error.hpp"
#include "trireme/base/process_limits.hpp"
#include "trireme/comm/store_timeout.hpp"
#include "trireme/runtime/launcher/owned_fd.hpp"
#include "trireme/runtime/rank/port_owner.hpp"
#include "trireme/runtime/rank/wait_notes.hpp"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

std::chrono::milliseconds milliseconds(double s) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(s * 1000));
}

constexpr const char* kJobKey = "trireme/job";

HostedStore listen(int port, const std::string& job_id, double timeout_s) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(port);
  options.isServer = true;
  options.waitWorkers = false;
  options.timeout = milliseconds(timeout_s);
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    const int taken = store->getPort();
    const StorePtr hosted = std::move(store);
    hosted->set(kJobKey, job_id);
    return {hosted, taken};
  } catch (const std::exception& e) {
    if (const auto limit = limit_behind(e)) throw ConfigError(text("the store of this job: ", limit->what));
    const std::string holder = port_owner(port);
    throw ConfigError(text("port ", port, " cannot be used for the store of this job",
                           holder.empty() ? text(": ", first_line(e.what())) : text(": it is held by ", holder),
                           "\n  fix: choose another port (--master HOST:PORT, or MASTER_PORT), or end that process"));
  }
}

/// A connection to a local port without a listener can connect to itself (TCP self-connect), if the system picks that
/// same port for our end.
bool met_itself(int fd) {
  sockaddr_storage ends[2] = {};
  socklen_t sizes[2] = {sizeof ends[0], sizeof ends[1]};
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&ends[0]), &sizes[0]) == 0 &&
         ::getpeername(fd, reinterpret_cast<sockaddr*>(&ends[1]), &sizes[1]) == 0 && sizes[0] == sizes[1] &&
         std::memcmp(&ends[0], &ends[1], sizes[0]) == 0;
}

/// "" if there is a listener, else the reason. One attempt ends by `until`.
std::string try_address(const addrinfo& at, Clock::time_point until) {
  const launcher::OwnedFd fd(::socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int error = 0;
  socklen_t size = sizeof error;
  if (!fd) return std::strerror(errno);
  if (::connect(fd.get(), at.ai_addr, at.ai_addrlen) != 0 && errno != EINPROGRESS) return std::strerror(errno);
  pollfd wait{fd.get(), POLLOUT, 0};
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
  if (::poll(&wait, 1, static_cast<int>(std::clamp<std::int64_t>(left, 1, 2000))) == 0) return "no answer";
  ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error == 0 && met_itself(fd.get())) return std::strerror(ECONNREFUSED);
  return error == 0 ? "" : std::strerror(error);
}

/// Waits until there is a listener. libtorch would too, but takes up to twice the time and prints its stack. The name
/// is resolved each time: a pod's name may appear after the pod.
std::string wait_for_listener(const std::string& address, int port, Clock::time_point until, WaitNotes& notes,
                              const std::atomic<bool>& over) {
  for (std::string why;;) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    const int error = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
    if (error != 0) why = ::gai_strerror(error);
    for (const addrinfo* at = found; at != nullptr; at = at->ai_next)
      if ((why = try_address(*at, until)).empty()) break;
    if (found != nullptr) ::freeaddrinfo(found);
    if (why.empty() || Clock::now() >= until || over) return why;
    notes.tell([&] { return text("the store at ", store_url(address, port), ": ", why); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

/// libtorch waits forever for the handshake of whatever listens there. So this runs in a thread, which is abandoned if
/// there is no answer: the process ends then.
StorePtr connect(const std::string& address, const c10d::TCPStoreOptions& options) {
  auto made = std::make_shared<std::promise<StorePtr>>();
  std::future<StorePtr> store = made->get_future();
  std::thread([made, address, options] {
    try {
      made->set_value(c10::make_intrusive<c10d::TCPStore>(address, options));
    } catch (...) {
      made->set_exception(std::current_exception());
    }
  }).detach();
  if (store.wait_for(options.timeout) != std::future_status::ready)
    throw std::runtime_error("what listens there does not answer as a store: another program, or a host that hangs");
  return store.get();
}

StorePtr come_to(const Environment& env, double timeout_s) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(env.master_port);
  options.waitWorkers = false;
  const auto until = Clock::now() + milliseconds(timeout_s);
  try {
    WaitNotes notes(text("rank ", env.rank, " of ", env.world_size), timeout_s);
    const std::string why = wait_for_listener(env.master_addr, env.master_port, until, notes, false);
    if (!why.empty()) throw std::runtime_error(why);
    constexpr std::chrono::milliseconds kForTheGreeting(2000);
    options.timeout =
        std::max(std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()), kForTheGreeting);
    return with_receive_timeout(timeout_s, [&] { return connect(env.master_addr, options); });
  } catch (const std::exception& e) {
    throw CommError(
        CommError::Kind::peer_lost,
        text("rank ", env.rank, " of ", env.world_size, " cannot reach the store at ",
             store_url(env.master_addr, env.master_port), " (waited up to ", timeout_s, " s): ", first_line(e.what()),
             "\n  ", env.store_is_hosted ? "the launcher" : "rank 0", " hosts it, and started by: ", env.how,
             "\n  fix: is it running, is the address right, is the port open between the hosts?"));
  }
}

void check_job(const StorePtr& store, const Environment& env) {
  if (env.job_id.empty() || !store->check({kJobKey})) return;
  const std::string theirs = store->get_to_str(kJobKey);
  if (!theirs.empty() && theirs != env.job_id)
    throw ConfigError(text("rank ", env.rank, ": the store at ", store_url(env.master_addr, env.master_port),
                           " belongs to job ", theirs, ", this is job ", env.job_id,
                           "\n  two jobs were started on one port\n",
                           "  fix: give each its own (--master HOST:PORT, or MASTER_PORT)"));
}

}  // namespace

StoreNotes::StoreNotes(const std::string& who, const std::string& address, int port)
    : over_(std::make_shared<std::atomic<bool>>(false)) {
  // Detached: it may be resolving a name, for which the end of the job must not wait.
  std::thread([over = over_, who, address, port] {
    WaitNotes notes(who, 0);
    wait_for_listener(address, port, Clock::time_point::max(), notes, *over);
  }).detach();
}

StoreNotes::~StoreNotes() { *over_ = true; }

HostedStore host_store(int port, const std::string& job_id) { return listen(port, job_id, 300); }

StorePtr join_store(const Environment& env, const CommOptions& options, const std::string& attempt) {
  StorePtr store;
  if (!env.master_addr.empty()) {
    store = env.rank == 0 && !env.store_is_hosted ? listen(env.master_port, env.job_id, options.init_timeout_s).store
                                                  : come_to(env, options.init_timeout_s);
    check_job(store, env);
  } else if (!env.store_file.empty()) {
    store = c10::make_intrusive<c10d::FileStore>(env.store_file, env.world_size);
  } else {
    require<ConfigError>(env.world_size == 1, "rank ", env.rank, " of ", env.world_size, " was started (", env.how,
                         ") without a place to meet the others\n  fix: --master HOST:PORT");
    store = c10::make_intrusive<c10d::HashStore>();
  }
  store->setTimeout(milliseconds(options.init_timeout_s));
  return c10::make_intrusive<c10d::PrefixStore>(text("trireme/", env.job_id, "/", attempt), store);
}

}  // namespace trireme
