#pragma once
// Receive timeouts for libtorch's store, which otherwise waits forever if its host is stopped or unreachable.
#include <functional>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace trireme {

/// The store that `connect` creates. The sockets it opened get a receive timeout: a later answer is an exception, after
/// which that store must not be used again (the answer may still arrive). Waits for a key have their own timeouts and
/// are not affected.
c10::intrusive_ptr<c10d::Store> with_receive_timeout(double seconds,
                                                     const std::function<c10::intrusive_ptr<c10d::Store>()>& connect);

}  // namespace trireme
