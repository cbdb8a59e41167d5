#pragma once
// Bounds for what libtorch's store waits without any: an answer of a store whose host is stopped or cut off.
#include <functional>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace trireme {

/// The store that `connect` makes. The sockets it opened in doing so get a receive timeout: an answer that takes longer
/// is an exception, after which that store must not be used again (the answer may still come). Waits for a key have
/// timeouts of their own and are not cut short.
c10::intrusive_ptr<c10d::Store> with_receive_timeout(double seconds,
                                                     const std::function<c10::intrusive_ptr<c10d::Store>()>& connect);

}  // namespace trireme
