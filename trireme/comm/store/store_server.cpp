#include "trireme/comm/store/store_server.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "trireme/comm/store/store_listeners.hpp"
#include "trireme/comm/store/store_request.hpp"
#include "trireme/comm/store/store_values.hpp"
#include "trireme/comm/store/store_wire.hpp"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;
using store_wire::BadClient;
using store_wire::Request;
using store_wire::RequestReader;

constexpr std::size_t kMaxRequestBytes = 16 * 1024 * 1024;  // a client that sends more before a whole request is closed
constexpr std::size_t kMaxUnreadBytes = 64 * 1024 * 1024;   // so is one that does not read its answers
constexpr std::chrono::milliseconds kPause(100);            // without descriptors for more connections

struct Connection {
  enum class State { stranger, greeted, proven, joined };

  OwnedFd fd;
  State state = State::stranger;
  Clock::time_point since = Clock::now();
  std::string in{}, out{};
  std::string nonces[2]{};  // of the client and ours
  bool wants_writing = false;
};

/// The thread of a server: its connections and its keys.
class StoreLoop {
 public:
  StoreLoop(const StoreServerOptions& options, std::vector<int> listeners, int wake)
      : options_(options), listeners_(std::move(listeners)), wake_(wake), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!epoll_) throw std::system_error(errno, std::generic_category(), "epoll_create1");
    if (!options.first_key.empty()) values_.set("/" + options.first_key, options.first_value);
    listen(true, EPOLL_CTL_ADD);
    control(EPOLL_CTL_ADD, wake_, kWake, EPOLLIN);
  }

  void run() {
    std::array<epoll_event, 64> events;
    for (;;) {
      const int n = ::epoll_wait(epoll_.get(), events.data(), events.size(), milliseconds_to_next());
      if (n < 0 && errno != EINTR) return;
      for (int i = 0; i < n; ++i) {
        const epoll_event& event = events[static_cast<std::size_t>(i)];
        if (event.data.u64 == kWake) return;
        if (event.data.u64 < kFirstConnection)
          accept_all(listeners_[event.data.u64]);
        else
          serve(event.data.u64, event.events);
      }
      close_late_strangers();
      if (paused_until_ && Clock::now() >= *paused_until_) listen(true, EPOLL_CTL_MOD);
    }
  }

 private:
  static constexpr std::uint64_t kWake = 1000, kFirstConnection = 1001;  // epoll's data; below: indices of listeners

  void control(int operation, int fd, std::uint64_t id, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = id;
    ::epoll_ctl(epoll_.get(), operation, fd, &event);
  }

  void listen(bool on, int operation) {
    for (std::size_t i = 0; i < listeners_.size(); ++i) control(operation, listeners_[i], i, on ? EPOLLIN : 0u);
    paused_until_ = on ? std::nullopt : std::optional(Clock::now() + kPause);
  }

  int milliseconds_to_next() const {
    std::optional<Clock::time_point> next = paused_until_;
    if (!strangers_.empty()) {
      const auto late = connections_.at(*strangers_.begin()).since + greeting();
      next = next ? std::min(*next, late) : late;
    }
    if (!next) return -1;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(*next - Clock::now()).count();
    return static_cast<int>(std::max<std::int64_t>(left, 0) + 1);
  }

  std::chrono::milliseconds greeting() const {
    return std::chrono::milliseconds(static_cast<std::int64_t>(options_.greeting_s * 1000));
  }

  void close_late_strangers() {
    while (!strangers_.empty() && connections_.at(*strangers_.begin()).since + greeting() <= Clock::now())
      forget(*strangers_.begin());
  }

  void accept_all(int listener) {
    for (;;) {
      OwnedFd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd && (errno == EINTR || errno == ECONNABORTED)) continue;
      if (!fd && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
        if (strangers_.empty()) return listen(false, EPOLL_CTL_MOD);
        forget(*strangers_.begin());
        continue;
      }
      if (!fd) return;
      const int on = 1;
      ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      ::setsockopt(fd.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
      control(EPOLL_CTL_ADD, fd.get(), next_id_, EPOLLIN);
      connections_.emplace(next_id_, Connection{.fd = std::move(fd)});
      strangers_.insert(next_id_++);
      if (strangers_.size() > std::max(kStoreStrangers, 2 * options_.expected_clients)) forget(*strangers_.begin());
    }
  }

  void forget(std::uint64_t id) {
    const auto at = connections_.find(id);
    if (at == connections_.end()) return;
    values_.stop_waiting(id);
    strangers_.erase(id);
    connections_.erase(at);  // closes, which removes it from epoll
  }

  void serve(std::uint64_t id, std::uint32_t events) {
    const auto at = connections_.find(id);
    if (at == connections_.end()) return;  // forgotten in this round
    Connection& connection = at->second;
    try {
      if ((events & EPOLLOUT) != 0) flush(id, connection);
      if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) receive(id, connection);
    } catch (const BadClient&) {
      forget(id);
    }
  }

  void receive(std::uint64_t id, Connection& connection) {
    std::array<char, 65536> part;
    const auto n = ::recv(connection.fd.get(), part.data(), part.size(), 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) throw BadClient();
    connection.in.append(part.data(), static_cast<std::size_t>(n));
    std::size_t done = 0;
    while (done < connection.in.size()) {
      RequestReader reader(std::string_view(connection.in).substr(done));
      if (!answer(id, connection, reader)) break;
      done += reader.consumed();
    }
    connection.in.erase(0, done);
    if (connection.in.size() > kMaxRequestBytes) throw BadClient();
    flush(id, connection);
  }

  void flush(std::uint64_t id, Connection& connection) {
    std::size_t sent = 0;
    while (sent < connection.out.size()) {
      const auto n =
          ::send(connection.fd.get(), connection.out.data() + sent, connection.out.size() - sent, MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) break;
      if (n <= 0) throw BadClient();
      sent += static_cast<std::size_t>(n);
    }
    connection.out.erase(0, sent);
    if (connection.out.size() > kMaxUnreadBytes) throw BadClient();
    const bool wants = !connection.out.empty();
    if (wants != std::exchange(connection.wants_writing, wants))
      control(EPOLL_CTL_MOD, connection.fd.get(), id, wants ? EPOLLIN | EPOLLOUT : EPOLLIN);
  }

  /// False if the request has not arrived completely.
  bool answer(std::uint64_t id, Connection& connection, RequestReader& reader) {
    if (connection.state == Connection::State::greeted) return check_proof(connection, reader);
    std::uint8_t first = 0;
    reader.number(first);
    const auto request = static_cast<Request>(first);
    if (connection.state == Connection::State::joined) return answer_joined(id, connection, request, reader);
    if (request == Request::hello && connection.state == Connection::State::stranger) return greet(connection, reader);
    if (request != Request::validate) throw BadClient();
    if (!options_.secret.empty() && connection.state != Connection::State::proven) {
      store_wire::put(connection.out, store_wire::kAsksForSecret);
      flush(id, connection);
      throw BadClient();
    }
    std::uint32_t magic = 0;
    if (!reader.number(magic)) return false;
    if (magic != store_wire::kMagic) throw BadClient();
    connection.state = Connection::State::joined;
    strangers_.erase(id);
    return true;
  }

  bool greet(Connection& connection, RequestReader& reader) {
    std::string_view nonce;
    if (!reader.raw(nonce, store_wire::kNonceBytes)) return false;
    if (options_.secret.empty()) {
      store_wire::put(connection.out, store_wire::kNoSecret);
      return true;
    }
    connection.nonces[0] = nonce;
    connection.nonces[1] = random_bytes(store_wire::kNonceBytes);
    connection.state = Connection::State::greeted;
    store_wire::put(connection.out, store_wire::kHasSecret);
    connection.out += connection.nonces[1];
    connection.out += store_wire::proof(options_.secret, "server", connection.nonces[0], connection.nonces[1]);
    return true;
  }

  bool check_proof(Connection& connection, RequestReader& reader) {
    std::string_view theirs;
    if (!reader.raw(theirs, store_wire::kProofBytes)) return false;
    if (!same_bytes(theirs, store_wire::proof(options_.secret, "client", connection.nonces[0], connection.nonces[1])))
      throw BadClient();
    connection.state = Connection::State::proven;
    return true;
  }

  bool answer_joined(std::uint64_t id, Connection& connection, Request request, RequestReader& reader) {
    std::string key, value, other;
    std::vector<std::string> keys;
    switch (request) {
      case Request::ping: {
        std::uint32_t nonce = 0;
        if (!reader.number(nonce)) return false;
        store_wire::put(connection.out, nonce);
        return true;
      }
      case Request::set:
        if (!reader.key(key) || !reader.value(value)) return false;
        set(key, std::move(value));
        return true;
      case Request::compare_set:
        if (!reader.key(key) || !reader.value(value) || !reader.value(other)) return false;
        store_wire::put_bytes(connection.out, compare_set(key, value, other));
        return true;
      case Request::get:
        if (!reader.key(key)) return false;
        store_wire::put_bytes(connection.out, values_.existing(key));
        return true;
      case Request::add: {
        std::int64_t amount = 0;
        if (!reader.key(key) || !reader.number(amount)) return false;
        const std::int64_t sum = values_.sum_of(key, amount);
        set(key, std::to_string(sum));
        store_wire::put(connection.out, sum);
        return true;
      }
      case Request::check:
        if (!reader.keys(keys)) return false;
        store_wire::put(connection.out, values_.missing_of(keys).empty() ? store_wire::kReady : store_wire::kNotReady);
        return true;
      case Request::wait:
        if (!reader.keys(keys)) return false;
        start_waiting(id, connection, values_.missing_of(keys));
        return true;
      case Request::cancel_wait:
        values_.stop_waiting(id);
        store_wire::put(connection.out, store_wire::kCanceled);
        return true;
      case Request::number_of_keys: store_wire::put<std::int64_t>(connection.out, values_.size()); return true;
      case Request::delete_key:
        if (!reader.key(key)) return false;
        store_wire::put<std::int64_t>(connection.out, values_.erase(key));
        return true;
      case Request::append:
        if (!reader.key(key) || !reader.value(value)) return false;
        set(key, values_.appended(key, value));
        return true;
      case Request::multi_get:
        if (!reader.keys(keys)) return false;
        for (const std::string& each : keys) store_wire::put_bytes(connection.out, values_.existing(each));
        return true;
      case Request::multi_set: return multi_set(reader);
      default: throw BadClient();
    }
  }

  bool multi_set(RequestReader& reader) {
    std::uint64_t count = 0;
    if (!reader.number(count)) return false;
    if (count > store_wire::kMaxKeys) throw BadClient();
    std::vector<std::pair<std::string, std::string>> all;  // set only when all have arrived
    for (std::string key, value; all.size() < count; all.emplace_back(key, value))
      if (!reader.key(key) || !reader.value(value)) return false;
    for (auto& [key, value] : all) set(key, std::move(value));
    return true;
  }

  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired) {
    StoreValues::Compared result = values_.compared(key, expected, desired);
    if (result.swapped) set(key, result.value);
    return std::move(result.value);
  }

  void start_waiting(std::uint64_t id, Connection& connection, const std::vector<std::string>& missing) {
    if (!missing.empty()) return values_.wait(id, missing);
    values_.stop_waiting(id);
    store_wire::put(connection.out, store_wire::kStopWaiting);
  }

  void set(const std::string& key, std::string value) {
    for (const std::uint64_t id : values_.set(key, std::move(value))) {
      Connection& connection = connections_.at(id);
      store_wire::put(connection.out, store_wire::kStopWaiting);
      // Written when it is ready for it: a failure now would end the client whose request this is.
      connection.wants_writing = true;
      control(EPOLL_CTL_MOD, connection.fd.get(), id, EPOLLIN | EPOLLOUT);
    }
  }

  const StoreServerOptions options_;
  const std::vector<int> listeners_;
  const int wake_;
  const OwnedFd epoll_;
  std::uint64_t next_id_ = kFirstConnection;
  std::map<std::uint64_t, Connection> connections_;
  std::set<std::uint64_t> strangers_;  // the oldest first
  std::optional<Clock::time_point> paused_until_;
  StoreValues values_;
};

}  // namespace

StoreServer::StoreServer(const StoreServerOptions& options)
    : listeners_(listeners_of(options.address, options.port)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  everywhere_ = listeners_.empty();
  if (everywhere_) listeners_.push_back(listener_everywhere(options.port));
  if (!listeners_.front()) throw std::system_error(errno, std::generic_category(), "listen");
  if (!wake_) throw std::system_error(errno, std::generic_category(), "eventfd");
  port_ = port_of(listeners_.front().get());
  std::vector<int> fds;
  for (const OwnedFd& listener : listeners_) fds.push_back(listener.get());
  auto loop = std::make_shared<StoreLoop>(options, std::move(fds), wake_.get());
  thread_ = std::thread([loop] { loop->run(); });
}

bool StoreServer::only_loopback() const {
  return std::ranges::all_of(listeners_, [](const OwnedFd& listener) { return is_on_loopback(listener.get()); });
}

StoreServer::~StoreServer() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
  thread_.join();
}

}  // namespace trireme
