#include "trireme/comm/store/store_client.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/store/store_wire.hpp"

namespace trireme {
namespace {

using std::chrono::milliseconds;
using store_wire::Request;
using SteadyClock = std::chrono::steady_clock;

constexpr std::uint32_t kPing = 0x74726972;

/// A connection to a local port without a listener can connect to itself (TCP self-connect), if the system picks that
/// same port for our end.
bool met_itself(int fd) {
  sockaddr_storage ends[2] = {};
  socklen_t sizes[2] = {sizeof ends[0], sizeof ends[1]};
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&ends[0]), &sizes[0]) == 0 &&
         ::getpeername(fd, reinterpret_cast<sockaddr*>(&ends[1]), &sizes[1]) == 0 && sizes[0] == sizes[1] &&
         std::memcmp(&ends[0], &ends[1], sizes[0]) == 0;
}

/// 0 milliseconds: not at all. False after the time.
bool ready(int fd, short events, milliseconds timeout) {
  const auto until = SteadyClock::now() + timeout;
  for (;;) {
    pollfd one{fd, events, 0};
    const auto left = std::chrono::duration_cast<milliseconds>(until - SteadyClock::now()).count();
    const int n = ::poll(&one, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30)));
    if (n > 0) return true;
    if (n == 0 && left <= 0) return false;
  }
}

StoreConnection connect_to_address(const addrinfo& at, milliseconds timeout) {
  OwnedFd fd(::socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int error = 0;
  socklen_t size = sizeof error;
  if (!fd) return {{}, std::strerror(errno)};
  if (::connect(fd.get(), at.ai_addr, at.ai_addrlen) != 0 && errno != EINPROGRESS) return {{}, std::strerror(errno)};
  if (!ready(fd.get(), POLLOUT, timeout)) return {{}, "no answer"};
  ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error == 0 && met_itself(fd.get())) error = ECONNREFUSED;
  if (error != 0) return {{}, std::strerror(error)};
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return {std::move(fd), ""};
}

std::string request_of(Request request) { return {static_cast<char>(request)}; }

/// libtorch's clients put a slash before each key.
std::string stored_key(const std::string& key) { return "/" + key; }

std::string request_of(Request request, const std::string& key) {
  std::string bytes = request_of(request);
  store_wire::put_bytes(bytes, stored_key(key));
  return bytes;
}

std::string request_of(Request request, const std::vector<std::string>& keys) {
  std::string bytes = request_of(request);
  store_wire::put<std::uint64_t>(bytes, keys.size());
  for (const std::string& key : keys) store_wire::put_bytes(bytes, stored_key(key));
  return bytes;
}

std::string_view viewed(const std::vector<std::uint8_t>& value) {
  return {reinterpret_cast<const char*>(value.data()), value.size()};
}

}  // namespace

StoreConnection connect_to_store(const StoreAddress& at, milliseconds timeout) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int error = ::getaddrinfo(at.host.c_str(), std::to_string(at.port).c_str(), &hints, &found);
  if (error != 0) return {{}, ::gai_strerror(error)};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  StoreConnection connection;
  for (const addrinfo* one = found; one != nullptr && !connection.fd; one = one->ai_next)
    connection = connect_to_address(*one, timeout);
  return connection;
}

StoreClient::StoreClient(OwnedFd connection, StoreAddress at, milliseconds timeout, std::shared_ptr<StoreServer> server)
    : Store(timeout), at_(std::move(at)), server_(std::move(server)), fd_(std::move(connection)) {
  greet(timeout);
}

c10::intrusive_ptr<c10d::Store> StoreClient::clone() {
  StoreConnection connection = connect_to_store(at_, timeout_);
  if (!connection.fd) throw std::runtime_error(connection.why);
  return c10::make_intrusive<StoreClient>(std::move(connection.fd), at_, timeout_, server_);
}

c10::intrusive_ptr<c10d::Store> with_retries(std::chrono::steady_clock::time_point until,
                                             const std::function<c10::intrusive_ptr<c10d::Store>()>& join) {
  for (auto pause = milliseconds(50);; pause *= 2) try {
      return join();
    } catch (const SecurityError&) {
      throw;
    } catch (const std::exception&) {
      if (pause > milliseconds(1000) || std::chrono::steady_clock::now() + pause >= until) throw;
      std::this_thread::sleep_for(pause);
    }
}

void StoreClient::greet(milliseconds timeout) {
  const milliseconds patience = std::exchange(timeout_, timeout);
  if (!at_.secret.empty()) {
    const std::string nonce = random_bytes(store_wire::kNonceBytes);
    send(request_of(Request::hello) + nonce);
    std::uint8_t has = 0;
    receive(&has, sizeof has, timeout);
    if (has == store_wire::kNoSecret)
      throw SecurityError(
          "the store asks for no secret, and this process has one: anyone may write to it\n"
          "  fix: set TRIREME_SECRET to the same value on all hosts");
    std::string theirs(store_wire::kNonceBytes + store_wire::kProofBytes, '\0');
    receive(theirs.data(), theirs.size(), timeout);
    const std::string their_nonce = theirs.substr(0, store_wire::kNonceBytes);
    if (has != store_wire::kHasSecret || !same_bytes(theirs.substr(store_wire::kNonceBytes),
                                                     store_wire::proof(at_.secret, "server", nonce, their_nonce)))
      throw SecurityError(
          "the store has a different secret than this process\n"
          "  fix: set TRIREME_SECRET to the same value on all hosts");
    send(store_wire::proof(at_.secret, "client", nonce, their_nonce));
  }
  std::string first = request_of(Request::validate);
  store_wire::put(first, store_wire::kMagic);
  first += request_of(Request::ping);
  store_wire::put(first, kPing);
  send(first);
  const auto answer = receive_number<std::uint32_t>();
  if (answer == store_wire::kAsksForSecret)
    throw SecurityError(
        "the store asks for a secret, and this process has none\n"
        "  fix: set TRIREME_SECRET to the same value on all hosts");
  if (answer != kPing) fail("the process that listens there is not a store");
  greeted_ = true;
  timeout_ = patience;
}

void StoreClient::fail(const std::string& why) {
  fd_.reset();
  throw std::runtime_error(why);
}

void StoreClient::send(const std::string& bytes) {
  if (!fd_) throw std::runtime_error("the connection to the store is lost");
  for (std::size_t sent = 0; sent < bytes.size();) {
    if (!ready(fd_.get(), POLLOUT, timeout_)) fail("the store does not answer");
    const auto n = ::send(fd_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) fail(std::strerror(errno));
    sent += static_cast<std::size_t>(n);
  }
}

void StoreClient::receive(void* bytes, std::size_t count, milliseconds timeout) {
  for (std::size_t have = 0; have < count;) {
    if (!ready(fd_.get(), POLLIN, timeout))
      fail(greeted_ ? "the store does not answer"
                    : "what listens there does not answer as a store: another program, or a host that hangs");
    const auto n = ::recv(fd_.get(), static_cast<char*>(bytes) + have, count - have, 0);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) fail(std::strerror(errno));
    if (n == 0) fail(greeted_ ? "the store closed the connection" : "what listens there closed the connection");
    have += static_cast<std::size_t>(n);
  }
}

template <class Number>
Number StoreClient::receive_number() {
  Number number{};
  receive(&number, sizeof number, timeout_);
  return number;
}

std::vector<std::uint8_t> StoreClient::receive_bytes() {
  const auto size = receive_number<std::uint64_t>();
  if (size > store_wire::kMaxValueBytes) fail("the store sent a value that is too long");
  std::vector<std::uint8_t> bytes(size);
  if (size > 0) receive(bytes.data(), size, timeout_);
  return bytes;
}

void StoreClient::set(const std::string& key, const std::vector<std::uint8_t>& value) {
  const std::scoped_lock lock(mutex_);
  std::string bytes = request_of(Request::set, key);
  store_wire::put_bytes(bytes, viewed(value));
  send(bytes);
}

std::vector<std::uint8_t> StoreClient::compareSet(const std::string& key, const std::vector<std::uint8_t>& expected,
                                                  const std::vector<std::uint8_t>& desired) {
  const std::scoped_lock lock(mutex_);
  std::string bytes = request_of(Request::compare_set, key);
  store_wire::put_bytes(bytes, viewed(expected));
  store_wire::put_bytes(bytes, viewed(desired));
  send(bytes);
  return receive_bytes();
}

std::vector<std::uint8_t> StoreClient::get(const std::string& key) {
  const std::scoped_lock lock(mutex_);
  do_wait({key}, timeout_);
  send(request_of(Request::get, key));
  return receive_bytes();
}

std::int64_t StoreClient::add(const std::string& key, std::int64_t value) {
  const std::scoped_lock lock(mutex_);
  std::string bytes = request_of(Request::add, key);
  store_wire::put(bytes, value);
  send(bytes);
  return receive_number<std::int64_t>();
}

bool StoreClient::deleteKey(const std::string& key) {
  const std::scoped_lock lock(mutex_);
  send(request_of(Request::delete_key, key));
  return receive_number<std::int64_t>() == 1;
}

bool StoreClient::check(const std::vector<std::string>& keys) {
  const std::scoped_lock lock(mutex_);
  send(request_of(Request::check, keys));
  return receive_number<std::uint8_t>() == store_wire::kReady;
}

std::int64_t StoreClient::getNumKeys() {
  const std::scoped_lock lock(mutex_);
  send(request_of(Request::number_of_keys));
  return receive_number<std::int64_t>();
}

void StoreClient::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void StoreClient::wait(const std::vector<std::string>& keys, const milliseconds& timeout) {
  const std::scoped_lock lock(mutex_);
  do_wait(keys, timeout);
}

void StoreClient::do_wait(const std::vector<std::string>& keys, milliseconds timeout) {
  send(request_of(Request::wait, keys));
  if (ready(fd_.get(), POLLIN, timeout == kNoTimeout ? std::chrono::hours(24 * 365) : timeout)) {
    if (receive_number<std::uint8_t>() != store_wire::kStopWaiting) fail("the store sent an answer to another request");
    return;
  }
  send(request_of(Request::cancel_wait));
  // The key may have come just before: then both answers come.
  const bool came = receive_number<std::uint8_t>() == store_wire::kStopWaiting;
  if (came && receive_number<std::uint8_t>() != store_wire::kCanceled)
    fail("the store sent an answer to another request");
  if (came) return;
  C10_THROW_ERROR(DistStoreError, text("wait timeout after ", timeout.count(), "ms, key: ", keys.front(),
                                       keys.size() > 1 ? text(" and ", keys.size() - 1, " more") : ""));
}

void StoreClient::append(const std::string& key, const std::vector<std::uint8_t>& value) {
  const std::scoped_lock lock(mutex_);
  std::string bytes = request_of(Request::append, key);
  store_wire::put_bytes(bytes, viewed(value));
  send(bytes);
}

std::vector<std::vector<std::uint8_t>> StoreClient::multiGet(const std::vector<std::string>& keys) {
  const std::scoped_lock lock(mutex_);
  do_wait(keys, timeout_);
  send(request_of(Request::multi_get, keys));
  std::vector<std::vector<std::uint8_t>> values;
  for (std::size_t i = 0; i < keys.size(); ++i) values.push_back(receive_bytes());
  return values;
}

void StoreClient::multiSet(const std::vector<std::string>& keys, const std::vector<std::vector<std::uint8_t>>& values) {
  require(keys.size() == values.size(), keys.size(), " keys and ", values.size(), " values");
  const std::scoped_lock lock(mutex_);
  std::string bytes = request_of(Request::multi_set);
  store_wire::put<std::uint64_t>(bytes, keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    store_wire::put_bytes(bytes, stored_key(keys[i]));
    store_wire::put_bytes(bytes, viewed(values[i]));
  }
  send(bytes);
}

}  // namespace trireme
