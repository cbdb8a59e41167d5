#pragma once
// A client of the job's store, or of any TCPStore of libtorch: without look-ups of names, and with a limit on every
// wait, which libtorch's client has not.
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trireme/base/owned_fd.hpp"
#include "trireme/comm/store/store_server.hpp"

namespace trireme {

/// Where a store is, and what it takes to join it.
struct StoreAddress {
  std::string host;
  int port = 0;
  std::string secret{};  // empty: none is asked for
};

/// A connection to one of the addresses of `host` within `timeout`, or an error that names the reason.
struct StoreConnection {
  OwnedFd fd;
  std::string why;  // if there is none
};
StoreConnection connect_to_store(const StoreAddress& at, std::chrono::milliseconds timeout);

/// Thread-safe: requests are sent one at a time. Every answer and every wait for a key must come within getTimeout().
/// After a failed request the connection is unusable: an answer may still arrive.
class StoreClient final : public c10d::Store {
 public:
  /// Takes over `connection`, greets within `timeout`. SecurityError if the two sides do not have the same secret.
  /// `server`: kept alive as long as this client, if this process hosts it.
  StoreClient(OwnedFd connection, StoreAddress at, std::chrono::milliseconds timeout,
              std::shared_ptr<StoreServer> server = nullptr);

  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::uint8_t> compareSet(const std::string& key, const std::vector<std::uint8_t>& expected,
                                       const std::vector<std::uint8_t>& desired) override;
  std::vector<std::uint8_t> get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;
  void append(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::vector<std::uint8_t>> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys, const std::vector<std::vector<std::uint8_t>>& values) override;
  bool hasExtendedApi() const override { return true; }

 private:
  void greet(std::chrono::milliseconds timeout);
  void send(const std::string& bytes);
  void receive(void* bytes, std::size_t count, std::chrono::milliseconds timeout);
  void do_wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout);
  template <class Number>
  Number receive_number();
  std::vector<std::uint8_t> receive_bytes();
  [[noreturn]] void fail(const std::string& why);

  const StoreAddress at_;
  const std::shared_ptr<StoreServer> server_;
  std::mutex mutex_;
  OwnedFd fd_;
  bool greeted_ = false;
};

/// A client, or a clone of one. When thousands of ranks come at once, a connection may be reset before it is served:
/// then it is tried again after 50, 100, ... 800 ms, as long as that is before `until`. Other errors than SecurityError
/// are thrown after the last try.
c10::intrusive_ptr<c10d::Store> with_retries(std::chrono::steady_clock::time_point until,
                                             const std::function<c10::intrusive_ptr<c10d::Store>()>& join);

}  // namespace trireme
