#pragma once
// The store of a job: a key-value server that libtorch's and our clients understand. Unlike libtorch's it listens only
// where it is told to, asks for a secret if there is one, and never waits for a client or for a name server.
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "trireme/base/owned_fd.hpp"

namespace trireme {

/// Connections that have not greeted yet; beyond it, or twice expected_clients, the oldest are closed.
inline constexpr std::size_t kStoreStrangers = 128;

struct StoreServerOptions {
  std::string address = "127.0.0.1";  // a name or a number
  int port = 0;                       // 0: any free one
  std::string secret{};               // empty: everybody who reaches the address may join
  std::string first_key{}, first_value{};
  std::size_t expected_clients = 0;  // which may all come at once
  double greeting_s = 10;            // after which a connection that has not greeted is closed
};

class StoreServer {
 public:
  /// std::runtime_error if the port cannot be used.
  explicit StoreServer(const StoreServerOptions& options);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  int port() const { return port_; }
  /// Whether it listens on all addresses, since `address` is none of this host (a forwarded one), or a name that only
  /// this host resolves to a loopback address.
  bool listens_everywhere() const { return everywhere_; }
  /// Whether other hosts cannot reach it.
  bool only_loopback() const;

 private:
  std::vector<OwnedFd> listeners_;
  int port_ = 0;
  bool everywhere_ = false;
  OwnedFd wake_;
  std::thread thread_;
};

}  // namespace trireme
