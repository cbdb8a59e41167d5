#pragma once
// Rendezvous: how ranks find each other through the store.
#include <atomic>
#include <memory>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trireme/comm/calls/comm_options.hpp"
#include "trireme/comm/store/store_client.hpp"
#include "trireme/runtime/environment/environment.hpp"

namespace trireme {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

struct HostedStore {
  std::shared_ptr<StoreServer> server;
  int port = 0;
};

/// Hosts a store for a job in this process, on the addresses of `at.host`; port 0: any free port. ConfigError names the
/// process that holds the port.
HostedStore host_store(const StoreAddress& at = {.host = "127.0.0.1"}, const std::string& job_id = "",
                       int world_size = 1);

/// While it lives, and as long as nothing listens there, says on stderr that the store is waited for: for a launcher
/// whose ranks say it in files only.
class StoreNotes {
 public:
  StoreNotes(const std::string& who, const std::string& address, int port);
  ~StoreNotes();
  StoreNotes(const StoreNotes&) = delete;
  StoreNotes& operator=(const StoreNotes&) = delete;

 private:
  std::shared_ptr<std::atomic<bool>> over_;
};

/// Connects to the store of the job in `environment`: rank 0 hosts it if no launcher does, the others connect within
/// init_timeout_s. A restarted job does not see the keys of the attempt before.
StorePtr join_store(const Environment& environment, const CommOptions& options);

}  // namespace trireme
