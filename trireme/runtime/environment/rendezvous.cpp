#include "trireme/runtime/environment/rendezvous.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>
#include <sstream>
#include <thread>

#include <sys/stat.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/base/process_limits.hpp"
#include "trireme/comm/store/signed_store.hpp"
#include "trireme/runtime/environment/own_address.hpp"
#include "trireme/runtime/environment/port_owner.hpp"
#include "trireme/runtime/environment/wait_notes.hpp"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

std::chrono::milliseconds milliseconds(double s) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(s * 1000));
}

constexpr const char* kJobKey = "trireme/job";
constexpr const char* kOpenStore = ", and without TRIREME_SECRET anyone who reaches it may join";

std::shared_ptr<StoreServer> listen(const StoreAddress& at, const std::string& job_id, int world_size) {
  try {
    auto server =
        std::make_shared<StoreServer>(StoreServerOptions{.address = at.host,
                                                         .port = at.port,
                                                         .secret = at.secret,
                                                         .first_key = kJobKey,
                                                         .first_value = job_id,
                                                         .expected_clients = 2 * static_cast<std::size_t>(world_size)});
    if (server->listens_everywhere())
      std::cerr << text("note: ", at.host, " is not an address of this host that others reach: the store listens on ",
                        "every address, port ", server->port(), at.secret.empty() ? kOpenStore : "", "\n");
    else if (at.secret.empty() && !server->only_loopback())
      std::cerr << text("note: the store at ", store_url(at.host, server->port()), " listens to other hosts",
                        kOpenStore, "\n");
    return server;
  } catch (const std::exception& e) {
    if (const auto limit = limit_behind(e)) throw ConfigError(text("the store of this job: ", limit->what));
    const std::string holder = port_owner(at.port);
    throw ConfigError(text("port ", at.port, " cannot be used for the store of this job",
                           holder.empty() ? text(": ", first_line(e.what())) : text(": it is in use by ", holder),
                           "\n  fix: choose another port (--master HOST:PORT, or MASTER_PORT), or end that process"));
  }
}

/// Waits until there is a listener. The name is resolved each time: a pod's name may appear after the pod.
StoreConnection wait_for_listener(const StoreAddress& at, Clock::time_point until, WaitNotes& notes,
                                  const std::atomic<bool>& over) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    StoreConnection connection =
        connect_to_store(at, std::chrono::milliseconds(std::clamp<std::int64_t>(left, 1, 2000)));
    if (connection.fd || Clock::now() >= until || over) return connection;
    notes.tell([&] { return text("the store at ", store_url(at.host, at.port), ": ", connection.why); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

/// The store of torchrun's agent and a file cannot ask for a secret: there the values are signed with it.
bool asks_for_secret(const Environment& env) {
  return env.store_file.empty() && !(env.store_is_hosted && env.launcher == "torchrun");
}

StoreAddress store_of(const Environment& env) {
  return {.host = env.master_addr, .port = env.master_port, .secret = asks_for_secret(env) ? env.secret : ""};
}

StorePtr come_to(const Environment& env, double timeout_s) {
  const StoreAddress at = store_of(env);
  const auto until = Clock::now() + milliseconds(timeout_s);
  const std::string who = text("rank ", env.rank, " of ", env.world_size);
  try {
    WaitNotes notes(who, timeout_s);
    constexpr std::chrono::milliseconds kForTheGreeting(2000);
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    return with_retries(until, [&] {
      StoreConnection connection = wait_for_listener(at, until, notes, false);
      if (!connection.fd) throw std::runtime_error(connection.why);
      return c10::make_intrusive<StoreClient>(std::move(connection.fd), at, std::max(left, kForTheGreeting));
    });
  } catch (const SecurityError& e) {
    throw SecurityError(text(who, " cannot join at ", store_url(at.host, at.port), ": ", e.what()));
  } catch (const std::exception& e) {
    throw CommError(CommError::Kind::peer_lost,
                    text(who, " cannot reach the store at ", store_url(at.host, at.port), " (waited up to ", timeout_s,
                         " s): ", first_line(e.what()), "\n  ", env.store_is_hosted ? "the launcher" : "rank 0",
                         " hosts it, launch: ", env.how,
                         "\n  fix: is it running, is the address right, is the port open between the hosts?"));
  }
}

/// Rank 0 is a client of the store that it hosts, like the others.
StorePtr greeted_by_host(const Environment& env, std::shared_ptr<StoreServer> server, double timeout_s) {
  StoreAddress at = store_of(env);
  if (server->listens_everywhere()) at.host = "127.0.0.1";
  StoreConnection connection = connect_to_store(at, milliseconds(timeout_s));
  require(bool(connection.fd), "the store that this process hosts at ", store_url(at.host, at.port), ": ",
          connection.why);
  return c10::make_intrusive<StoreClient>(std::move(connection.fd), at, milliseconds(timeout_s), std::move(server));
}

StorePtr host_and_join(const Environment& env, double timeout_s) {
  return greeted_by_host(env, listen(store_of(env), env.job_id, env.world_size), timeout_s);
}

/// The store file of a job has a name that others can guess, so its folder must be ours alone.
void make_private_folder(const std::string& folder) {
  struct stat facts{};
  const bool made = ::mkdir(folder.c_str(), 0700) == 0;
  require<ConfigError>(made || errno == EEXIST, "the folder of the store file ", folder,
                       " cannot be made: ", std::strerror(errno),
                       "\n  fix: set TMPDIR to a folder that this user can write to");
  const bool ours = ::lstat(folder.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode) && facts.st_uid == ::geteuid() &&
                    (facts.st_mode & 077) == 0;
  require<SecurityError>(ours, "the folder of the store file, ", folder,
                         ", is not a folder that only this user has access to (mode 0700)\n",
                         "  fix: remove it, or set TMPDIR to another folder, or give --master HOST:PORT");
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

/// The ranks have only a file in common: rank 0 hosts a store, and the file tells where. Used as the store of a whole
/// job it would grow for ever, and every request would read it.
StorePtr meet_in_file(const Environment& env, double timeout_s) {
  constexpr const char* kAddress = "address of the store";
  StorePtr file = c10::make_intrusive<c10d::FileStore>(env.store_file, env.world_size);
  file->setTimeout(milliseconds(timeout_s));
  if (!env.secret.empty()) file = c10::make_intrusive<SignedStore>(file, env.secret);
  const StorePtr place = c10::make_intrusive<c10d::PrefixStore>(text("trireme/", env.job_id, "/", env.attempt), file);
  Environment of_server = env;
  of_server.store_file.clear();
  of_server.master_addr = own_address(env);
  of_server.store_is_hosted = false;
  if (env.rank == 0) {
    auto server = listen(store_of(of_server), env.job_id, env.world_size);
    of_server.master_port = server->port();
    place->set(kAddress, text(of_server.master_addr, " ", of_server.master_port));
    return greeted_by_host(of_server, std::move(server), timeout_s);
  }
  std::istringstream address(place->get_to_str(kAddress));
  address >> of_server.master_addr >> of_server.master_port;
  return come_to(of_server, timeout_s);
}

}  // namespace

StoreNotes::StoreNotes(const std::string& who, const std::string& address, int port)
    : over_(std::make_shared<std::atomic<bool>>(false)) {
  // Detached: it may be resolving a name, for which the end of the job must not wait.
  std::thread([over = over_, who, at = StoreAddress{address, port}] {
    WaitNotes notes(who, 0);
    wait_for_listener(at, Clock::now() + std::chrono::hours(24 * 365), notes, *over);
  }).detach();
}

StoreNotes::~StoreNotes() { *over_ = true; }

HostedStore host_store(const StoreAddress& at, const std::string& job_id, int world_size) {
  HostedStore hosted{.server = listen(at, job_id, world_size)};
  hosted.port = hosted.server->port();
  return hosted;
}

StorePtr join_store(const Environment& env, const CommOptions& options) {
  StorePtr store;
  if (!env.master_addr.empty()) {
    store = env.rank == 0 && !env.store_is_hosted ? host_and_join(env, options.init_timeout_s)
                                                  : come_to(env, options.init_timeout_s);
    check_job(store, env);
  } else if (!env.store_file.empty()) {
    if (env.store_folder_is_private) make_private_folder(std::filesystem::path(env.store_file).parent_path());
    store = meet_in_file(env, options.init_timeout_s);
  } else {
    require<ConfigError>(env.world_size == 1, "rank ", env.rank, " of ", env.world_size, " was started (", env.how,
                         ") without a rendezvous address\n  fix: --master HOST:PORT");
    store = c10::make_intrusive<c10d::HashStore>();
  }
  store->setTimeout(milliseconds(options.init_timeout_s));
  if (!env.secret.empty() && !asks_for_secret(env)) store = c10::make_intrusive<SignedStore>(store, env.secret);
  return c10::make_intrusive<c10d::PrefixStore>(text("trireme/", env.job_id, "/", env.attempt), store);
}

}  // namespace trireme
