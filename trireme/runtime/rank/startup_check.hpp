#pragma once
// Before the first collective: is everybody there, and is everybody the same?
#include "trireme/comm/comm_options.hpp"
#include "trireme/runtime/rank/fingerprint.hpp"
#include "trireme/runtime/rank/rendezvous.hpp"

namespace trireme {

/// Every rank says that it is there and what it is; returns when all have come and are alike. Throws CommError that
/// names the ranks that came, when some did not within init_timeout_s; ConfigError, on every rank and at once, when two
/// differ.
void check_startup(const StorePtr& store, int rank, int world_size, const Fingerprint& fingerprint,
                   const CommOptions& options);

}  // namespace trireme
