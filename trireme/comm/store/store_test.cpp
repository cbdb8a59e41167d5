#include <atomic>
#include <chrono>
#include <future>
#include <memory>

#include <arpa/inet.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "trireme/base/error.hpp"
#include "trireme/comm/store/store_client.hpp"
#include "trireme/comm/store/store_server.hpp"
#include "trireme/comm/store/store_wire.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace {
std::atomic<int> looked_up_names = 0;
}

/// In place of the system's, for this process: counts look-ups, each of which may ask a name server.
extern "C" int getnameinfo(const sockaddr* address, socklen_t size, char* host, socklen_t host_size, char* service,
                           socklen_t service_size, int flags) {
  using Function = int (*)(const sockaddr*, socklen_t, char*, socklen_t, char*, socklen_t, int);
  static const auto system = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "getnameinfo"));
  if ((flags & NI_NUMERICHOST) == 0) ++looked_up_names;
  return system(address, size, host, host_size, service, service_size, flags);
}

namespace trireme {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using Bytes = std::vector<std::uint8_t>;

Bytes bytes_of_word(const std::string& word) { return {word.begin(), word.end()}; }

c10::intrusive_ptr<StoreClient> client_of(int port, const std::string& secret = "",
                                          milliseconds timeout = std::chrono::seconds(20)) {
  const StoreAddress at{.host = "127.0.0.1", .port = port, .secret = secret};
  StoreConnection connection = connect_to_store(at, timeout);
  require(bool(connection.fd), connection.why);
  return c10::make_intrusive<StoreClient>(std::move(connection.fd), at, timeout);
}

c10::intrusive_ptr<c10d::TCPStore> libtorch_store(int port, bool server) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(port);
  options.isServer = server;
  options.waitWorkers = false;
  options.timeout = std::chrono::seconds(20);
  return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
}

/// A client of neither kind.
class RawClient {
 public:
  explicit RawClient(int port)
      : fd_(connect_to_store({.host = "127.0.0.1", .port = port}, std::chrono::seconds(20)).fd) {}

  void send(const std::string& bytes) {
    ASSERT_EQ(::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  /// Whether the server closes within the time; what it sent before is in `got`.
  bool is_closed_within(milliseconds timeout) {
    for (;;) {
      pollfd one{fd_.get(), POLLIN, 0};
      if (::poll(&one, 1, static_cast<int>(timeout.count())) == 0) return false;
      char part[256];
      const auto n = ::recv(fd_.get(), part, sizeof part, 0);
      if (n <= 0) return true;
      got.append(part, static_cast<std::size_t>(n));
    }
  }
  std::string got;

 private:
  OwnedFd fd_;
};

std::string validation() {
  std::string bytes(1, static_cast<char>(store_wire::Request::validate));
  store_wire::put(bytes, store_wire::kMagic);
  return bytes;
}

void uses_every_request(c10d::Store& store) {
  store.set("a", bytes_of_word("1"));
  EXPECT_EQ(store.get("a"), bytes_of_word("1"));
  EXPECT_EQ(store.add("n", 3), 3);
  EXPECT_EQ(store.add("n", -5), -2);
  EXPECT_EQ(store.get("n"), bytes_of_word("-2"));
  EXPECT_TRUE(store.check({"a", "n"}));
  EXPECT_FALSE(store.check({"a", "no"}));
  EXPECT_EQ(store.compareSet("c", bytes_of_word("x"), bytes_of_word("y")), bytes_of_word("x"));
  EXPECT_FALSE(store.check({"c"}));
  EXPECT_EQ(store.compareSet("c", {}, bytes_of_word("y")), bytes_of_word("y"));
  EXPECT_EQ(store.compareSet("c", bytes_of_word("x"), bytes_of_word("z")), bytes_of_word("y"));
  EXPECT_EQ(store.compareSet("c", bytes_of_word("y"), bytes_of_word("z")), bytes_of_word("z"));
  store.append("a", bytes_of_word("23"));
  store.append("new", bytes_of_word("x"));
  store.multiSet({"d", "e"}, {bytes_of_word(""), Bytes(100'000, 7)});
  EXPECT_EQ(store.multiGet({"a", "new", "d", "e"}),
            (std::vector<Bytes>{bytes_of_word("123"), bytes_of_word("x"), {}, Bytes(100'000, 7)}));
  const std::int64_t keys = store.getNumKeys();
  EXPECT_TRUE(store.deleteKey("a"));
  EXPECT_FALSE(store.deleteKey("a"));
  EXPECT_EQ(store.getNumKeys(), keys - 1);
  EXPECT_THROW(store.wait({"e", "never"}, milliseconds(50)), c10::DistStoreError);
  store.wait({"d", "e"}, milliseconds(50));
}

TEST(Store, ClientsOfEitherKindUseServersOfEitherKind) {
  const StoreServer ours{{}};
  uses_every_request(*client_of(ours.port()));
  const StoreServer again{{}};
  uses_every_request(*libtorch_store(again.port(), false));
  const auto theirs = libtorch_store(0, true);
  uses_every_request(*client_of(theirs->getPort()));
}

TEST(Store, WakesThoseWhoWait) {
  const StoreServer server{{.first_key = "job", .first_value = "mine"}};
  const auto one = client_of(server.port()), other = client_of(server.port());
  EXPECT_EQ(one->get("job"), bytes_of_word("mine"));
  auto got = std::async(std::launch::async, [&] { return other->multiGet({"x", "y"}); });
  one->set("x", bytes_of_word("1"));
  one->add("y", 2);
  EXPECT_EQ(got.get(), (std::vector<Bytes>{bytes_of_word("1"), bytes_of_word("2")}));
}

TEST(Store, LooksUpNoNames) {
  const int before = looked_up_names;
  const StoreServer server{{}};
  const auto client = client_of(server.port());
  const auto copy = client->clone();
  copy->set("x", bytes_of_word("1"));
  EXPECT_EQ(client->get("x"), bytes_of_word("1"));
  EXPECT_EQ(looked_up_names, before);
}

TEST(Store, ListensOnItsAddressAlone) {
  const StoreServer local{{}};
  EXPECT_TRUE(local.only_loopback());
  EXPECT_NE(connect_to_store({.host = "127.0.0.2", .port = local.port()}, std::chrono::seconds(5)).why, "")
      << "another address";
  const StoreServer forwarded{{.address = "192.0.2.1"}};
  EXPECT_TRUE(forwarded.listens_everywhere());
  EXPECT_FALSE(forwarded.only_loopback());
  EXPECT_THROW(StoreServer({.port = local.port()}), std::system_error);
}

TEST(Store, IdleConnectionsAreBoundedBeforeAndAfterTheMeeting) {
  const StoreServer server{{.greeting_s = 60}};
  const auto met = client_of(server.port());
  std::vector<std::unique_ptr<RawClient>> idle;
  for (std::size_t i = 0; i < 2 * kStoreStrangers; ++i) idle.push_back(std::make_unique<RawClient>(server.port()));
  const auto late = client_of(server.port());
  late->set("x", bytes_of_word("1"));
  EXPECT_EQ(met->get("x"), bytes_of_word("1"));
  for (std::size_t i = 0; i < kStoreStrangers; ++i)
    EXPECT_TRUE(idle[i]->is_closed_within(std::chrono::seconds(20))) << i;
  EXPECT_FALSE(idle.back()->is_closed_within(milliseconds(0)));
}

/// All ranks of a large job connect within moments, and none has greeted yet.
TEST(Store, AsManyAsAreExpectedMayComeAtOnce) {
  constexpr std::size_t kExpected = 100, kMost = 2 * kExpected;
  static_assert(kMost > kStoreStrangers);
  const StoreServer server{{.expected_clients = kExpected, .greeting_s = 60}};
  std::vector<std::unique_ptr<RawClient>> idle;
  for (std::size_t i = 0; i < kMost; ++i) idle.push_back(std::make_unique<RawClient>(server.port()));
  {
    const auto met = client_of(server.port());  // it was accepted after the others, and is one too many for a moment
    EXPECT_EQ(met->add("n", 1), 1);
  }
  EXPECT_TRUE(idle[0]->is_closed_within(std::chrono::seconds(20)));
  for (std::size_t i = 1; i < kMost; ++i) EXPECT_FALSE(idle[i]->is_closed_within(milliseconds(0))) << i;
}

TEST(Store, ClosesWhoDoesNotGreetInTime) {
  const StoreServer server{{.greeting_s = 0.1}};
  const auto met = client_of(server.port());
  EXPECT_TRUE(RawClient(server.port()).is_closed_within(std::chrono::seconds(20)));
  EXPECT_EQ(met->add("n", 1), 1) << "who has greeted stays";
}

TEST(Store, WaitsForNobody) {
  const StoreServer server{{}};
  const auto good = client_of(server.port());
  RawClient half(server.port()), huge(server.port()), garbage(server.port()), unread(server.port());
  std::string request = validation();
  request.push_back(static_cast<char>(store_wire::Request::set));
  std::string too_long = request;
  store_wire::put<std::uint64_t>(request, 5);
  half.send(request + "ha");
  store_wire::put<std::uint64_t>(too_long, std::uint64_t{1} << 40);
  huge.send(too_long);
  garbage.send("GET / HTTP/1.1\r\n\r\n");
  unread.send(validation() + std::string(1, static_cast<char>(store_wire::Request::get)) + std::string(8, '\0'));
  EXPECT_TRUE(huge.is_closed_within(std::chrono::seconds(20)));
  EXPECT_TRUE(garbage.is_closed_within(std::chrono::seconds(20)));
  EXPECT_TRUE(unread.is_closed_within(std::chrono::seconds(20))) << "the key does not exist";
  EXPECT_FALSE(half.is_closed_within(milliseconds(0)));
  EXPECT_EQ(good->add("n", 1), 1);
}

TEST(Store, WithASecretLetsInOnlyWhoKnowsIt) {
  const StoreServer server{{.secret = "open sesame"}};
  const auto friendly = client_of(server.port(), "open sesame");
  EXPECT_EQ(friendly->clone()->add("n", 1), 1);
  EXPECT_THAT(message_of<SecurityError>([&] { client_of(server.port(), "open barley"); }),
              HasSubstr("a different secret"));
  EXPECT_THAT(message_of<SecurityError>([&] { client_of(server.port()); }), HasSubstr("asks for a secret"));
  const StoreServer open{{}};
  EXPECT_THAT(message_of<SecurityError>([&] { client_of(open.port(), "open sesame"); }),
              HasSubstr("asks for no secret"));

  // Neither reads nor writes, whatever is sent: with a proof of nothing, or of what the server itself has proved.
  std::string writes = validation() + std::string(1, static_cast<char>(store_wire::Request::set));
  store_wire::put_bytes(writes, "/stolen");
  store_wire::put_bytes(writes, "1");
  RawClient plain(server.port()), reflecting(server.port());
  plain.send(writes);
  EXPECT_TRUE(plain.is_closed_within(std::chrono::seconds(20)));
  reflecting.send(static_cast<char>(store_wire::Request::hello) + std::string(store_wire::kNonceBytes, 'c'));
  while (reflecting.got.size() < 1 + store_wire::kNonceBytes + store_wire::kProofBytes)
    ASSERT_FALSE(reflecting.is_closed_within(milliseconds(1)));
  reflecting.send(reflecting.got.substr(1 + store_wire::kNonceBytes) + writes);
  EXPECT_TRUE(reflecting.is_closed_within(std::chrono::seconds(20)));
  EXPECT_FALSE(friendly->check({"stolen"}));
}

TEST(Store, ThatIsGoneIsAnErrorSoon) {
  auto server = std::make_unique<StoreServer>(StoreServerOptions{});
  const auto client = client_of(server->port());
  auto waits = std::async(std::launch::async, [&] { client->wait({"never"}, std::chrono::seconds(60)); });
  server.reset();
  EXPECT_THROW(waits.get(), std::runtime_error);
  EXPECT_THROW(client->check({"x"}), std::runtime_error);
  const OwnedFd silent(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof any;
  ASSERT_EQ(::bind(silent.get(), reinterpret_cast<sockaddr*>(&any), size), 0);
  ASSERT_EQ(::listen(silent.get(), 4), 0);
  ::getsockname(silent.get(), reinterpret_cast<sockaddr*>(&any), &size);
  EXPECT_THAT(message_of<std::runtime_error>([&] { client_of(ntohs(any.sin_port), "", milliseconds(100)); }),
              HasSubstr("does not answer as a store"));
}

}  // namespace
}  // namespace trireme
