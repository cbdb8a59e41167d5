#pragma once
// Check before the first collective: have all ranks started, and do their fingerprints match?
#include "trireme/comm/calls/comm_options.hpp"
#include "trireme/runtime/environment/rendezvous.hpp"
#include "trireme/runtime/rank/fingerprint.hpp"

namespace trireme {

/// The GPU of a rank.
struct RankDevice {
  std::string id{};        // as no other device of any host; empty: not compared
  bool is_shared = false;  // whether other ranks may have the same
};

struct StartupResult {
  bool devices_are_shared = false;  // by some of the ranks
};

/// Every rank registers with its fingerprint; returns when all have registered and match. Throws CommError that names
/// the ranks that registered and those missing after init_timeout_s; ConfigError, immediately and on every rank, if two
/// differ, or have one device.
StartupResult check_startup(const StorePtr& store, int rank, int world_size, const Fingerprint& fingerprint,
                            const CommOptions& options, const RankDevice& device = {});

}  // namespace trireme
