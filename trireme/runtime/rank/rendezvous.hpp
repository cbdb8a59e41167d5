#pragma once
// How ranks find each other: the store.
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trireme/comm/comm_options.hpp"
#include "trireme/runtime/rank/environment.hpp"

namespace trireme {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

struct HostedStore {
  StorePtr store;
  int port = 0;
};

/// A store that this process hosts for a job; port 0: any that is free. ConfigError that names who holds the port.
HostedStore host_store(int port, const std::string& job_id);

/// The store of the job that `environment` names: rank 0 hosts it where nobody does yet, the others come to it within
/// init_timeout_s. `attempt`: a restarted job must not read what the last one left.
StorePtr join_store(const Environment& environment, const CommOptions& options, const std::string& attempt = "0");

}  // namespace trireme
