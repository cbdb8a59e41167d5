#include "trireme/runtime/rank/parallel_context.hpp"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <future>
#include <mutex>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <unistd.h>

#include "trireme/base/owned_fd.hpp"
#include "trireme/runtime/environment/own_address.hpp"
#include "trireme/runtime/environment/port_owner.hpp"
#include "trireme/runtime/environment/rendezvous.hpp"
#include "trireme/runtime/rank/startup_check.hpp"
#include "trireme/testing/temp_folder.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

Environment environment_of_rank(int rank, int world_size, int port) {
  return {.launcher = "a test",
          .rank = rank,
          .world_size = world_size,
          .local_rank = rank,
          .local_world_size = world_size,
          .master_addr = "127.0.0.1",
          .master_port = port,
          .store_is_hosted = true,
          .how = "a test"};
}

/// The exception message of each rank, "" if it did not throw.
template <class Body>
std::vector<std::string> on_ranks(int size, Body body) {
  const HostedStore hosted = host_store();
  std::vector<std::string> thrown(static_cast<std::size_t>(size));
  {
    std::vector<std::jthread> ranks;
    for (int r = 0; r < size; ++r)
      ranks.emplace_back([&, r] {
        try {
          body(environment_of_rank(r, size, hosted.port));
        } catch (const std::exception& e) {
          thrown[static_cast<std::size_t>(r)] = e.what();
        }
      });
  }
  return thrown;
}

double sum_over(Group& group, double mine) {
  return group.all_reduce(at::full({1}, mine, at::kDouble)).wait().item<double>();
}

TEST(ParallelContext, HasTheGroupsOfItsAxes) {
  const auto thrown = on_ranks(8, [](const Environment& env) {
    const ParallelContext context({.tensor_parallel_size = 2, .data_parallel_size = 2, .pipeline_parallel_size = 2},
                                  env);
    const int rank = context.rank();
    EXPECT_EQ(context.world_pg().size(), 8);
    EXPECT_THAT(context.tp_pg().world_ranks(), ElementsAre(rank / 2 * 2, rank / 2 * 2 + 1));
    EXPECT_THAT(context.dp_pg().world_ranks(), ElementsAre(rank - rank / 2 % 2 * 2, rank - rank / 2 % 2 * 2 + 2));
    EXPECT_THAT(context.pp_pg().world_ranks(), ElementsAre(rank % 4, rank % 4 + 4));
    EXPECT_EQ(context.cp_pg().size(), 1);
    EXPECT_EQ(sum_over(context.world_pg(), rank), 28);
    EXPECT_EQ(sum_over(context.pp_pg(), rank), 2 * (rank % 4) + 4);
    EXPECT_EQ(&context.mesh().group_of_ranks({0, 1, 2, 3, 4, 5, 6, 7}), &context.world_pg());
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(ParallelContext, HasContextAndExpertGroups) {
  const auto thrown = on_ranks(4, [](const Environment& env) {
    const ParallelContext context({.data_parallel_size = 2, .context_parallel_size = 2, .expert_parallel_size = 4},
                                  env);
    EXPECT_EQ(context.cp_pg().size(), 2);
    EXPECT_EQ(context.ep_pg().size(), 4);
    EXPECT_EQ(context.edp_pg().size(), 1);
  });
  EXPECT_THAT(thrown, Each(""));
}

TEST(ParallelContext, NeedsAsManyRanksAsItsLayout) {
  EXPECT_THAT(
      message_of<ConfigError>([] { ParallelContext({.tensor_parallel_size = 3}, environment_of_rank(0, 4, 1)); }),
      AllOf(HasSubstr("needs 3 ranks, 4 were started"), HasSubstr("launch: a test")));
}

TEST(ParallelContext, WorksAlone) {
  const ParallelContext context(1, 1, 1, Variables{});
  EXPECT_EQ(context.world_size(), 1);
  EXPECT_EQ(sum_over(context.world_pg(), 3), 3);
}

TEST(DeviceOfRank, GoesRoundTheGpus) {
  std::vector<int> devices;
  for (int rank = 0; rank < 8; ++rank) devices.push_back(device_of_rank(rank, 4).index());
  EXPECT_THAT(devices, ElementsAre(0, 1, 2, 3, 0, 1, 2, 3));
  EXPECT_TRUE(device_of_rank(5, 0).is_cpu());
}

TEST(StartupCheck, RanksThatDifferAreToldWhereAtOnce) {
  const auto thrown = on_ranks(3, [](const Environment& env) {
    ContextOptions options;
    options.fingerprint["optimizer.lr"] = env.rank == 2 ? "0.1" : "0.3";
    options.fingerprint["data"] = "the same";
    ParallelContext({.data_parallel_size = 3}, env, {}, options);
  });
  EXPECT_THAT(thrown,
              Each(AllOf(HasSubstr("rank 2 differs from rank 0"),
                         HasSubstr("optimizer.lr: rank 0 has 0.3, rank 2 has 0.1"), testing::Not(HasSubstr("data")))));
}

TEST(StartupCheck, SaysWhichRanksCame) {
  const auto thrown = on_ranks(3, [](const Environment& env) {
    if (env.rank == 1) return;
    ContextOptions options;
    options.comm.init_timeout_s = 0.5;
    ParallelContext({.data_parallel_size = 3}, env, {}, options);
  });
  EXPECT_THAT(thrown[0],
              AllOf(HasSubstr("2 of 3 ranks have joined"), HasSubstr("joined: 0, 2"), HasSubstr("missing: 1")));
  EXPECT_EQ(thrown[1], "");
}

/// Counts the keys that are asked for.
class CountingStore final : public c10d::HashStore {
 public:
  bool check(const std::vector<std::string>& keys) override {
    const std::scoped_lock lock(mutex_);
    most_keys_ = std::max(most_keys_, keys.size());
    asked_.insert(keys.begin(), keys.end());
    return HashStore::check(keys);
  }
  std::size_t most_keys() const { return most_keys_; }
  std::size_t different_keys() const { return asked_.size(); }

 private:
  std::mutex mutex_;
  std::size_t most_keys_ = 0;
  std::set<std::string> asked_;
};

TEST(StartupCheck, AsksForAsManyKeysInALargeWorldAsInASmallOne) {
  for (const int size : {2, 32}) {
    const auto store = c10::make_intrusive<CountingStore>();
    std::atomic<int> met = 0;
    {
      std::vector<std::jthread> ranks;
      for (int r = 0; r < size; ++r)
        ranks.emplace_back([&, r] {
          check_startup(store, r, size, {{"a", "1"}}, {});
          ++met;
        });
    }
    EXPECT_EQ(met, size);
    EXPECT_EQ(store->most_keys(), 1u);
    EXPECT_LE(store->different_keys(), 2u);
  }
}

/// Ranks as srun --gpus-per-task=1 starts them: each sees one GPU, its own cuda:0.
std::vector<std::string> start_with_devices(const std::vector<RankDevice>& devices, std::atomic<int>& shared) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::string> errors(devices.size());
  std::vector<std::jthread> ranks;
  for (std::size_t r = 0; r < devices.size(); ++r)
    ranks.emplace_back([&, r] {
      errors[r] = message_of<ConfigError>([&] {
        const auto size = static_cast<int>(devices.size());
        if (check_startup(store, static_cast<int>(r), size, {{"a", "1"}}, {}, devices[r]).devices_are_shared) ++shared;
      });
    });
  ranks.clear();
  return errors;
}

TEST(StartupCheck, ComparesGpusByTheirIdentity) {
  std::atomic<int> shared = 0;
  EXPECT_THAT(start_with_devices({{"gpu-a"}, {"gpu-b"}, {"gpu-c"}}, shared), Each("no error"));
  EXPECT_EQ(shared, 0);
  EXPECT_THAT(start_with_devices({{"gpu-a"}, {"gpu-b"}, {"gpu-a"}}, shared),
              Each(AllOf(HasSubstr("have the same GPU (UUID gpu-a)"), HasSubstr("comm.share_gpu"))));
  EXPECT_THAT(start_with_devices({{"gpu-a", true}, {"gpu-b", true}}, shared), Each("no error"));
  EXPECT_EQ(shared, 0) << "comm.share_gpu alone changes nothing";
  EXPECT_THAT(start_with_devices({{"gpu-a", true}, {"gpu-b", true}, {"gpu-a", true}}, shared), Each("no error"));
  EXPECT_EQ(shared, 3);
}

TEST(StartupCheck, TwoProcessesCannotBeOneRank) {
  const auto thrown = on_ranks(2, [](Environment env) {
    env.rank = 0;
    ContextOptions options;
    options.comm.init_timeout_s = 1;
    ParallelContext({.data_parallel_size = 2}, env, {}, options);
  });
  EXPECT_THAT(thrown, testing::Contains(HasSubstr("rank 0 of 2 has joined this job already")));
}

TEST(Rendezvous, AnotherJobsStoreIsRefused) {
  const HostedStore hosted = host_store({.host = "127.0.0.1"}, "job-a");
  Environment env = environment_of_rank(1, 2, hosted.port);
  env.job_id = "job-b";
  EXPECT_THAT(
      message_of<ConfigError>([&] { join_store(env, {}); }),
      AllOf(HasSubstr("belongs to job job-a, this is job job-b"), HasSubstr("two jobs were started on one port")));
}

TEST(Rendezvous, TheStoreOfAnotherSecretIsRefused) {
  const HostedStore hosted = host_store({.host = "127.0.0.1", .secret = "mine"});
  Environment env = environment_of_rank(1, 2, hosted.port);
  const auto refused = [&] { return message_of<SecurityError>([&] { join_store(env, {}); }); };
  EXPECT_THAT(refused(),
              AllOf(HasSubstr("rank 1 of 2 cannot join"), HasSubstr("asks for a secret"), HasSubstr("fix:")));
  env.secret = "yours";
  EXPECT_THAT(refused(), AllOf(HasSubstr("a different secret"), HasSubstr("TRIREME_SECRET")));
  env.secret = "mine";
  join_store(env, {})->set("x", "1");
}

TEST(Rendezvous, TheFolderOfAStoreFileIsOursAlone) {
  const TempFolder folder;
  Environment env = environment_of_rank(0, 1, 0);
  env.master_addr.clear();
  env.store_folder_is_private = true;
  env.store_file = (folder / "made/store").string();
  join_store(env, {})->set("x", "1");
  struct stat facts{};
  ASSERT_EQ(::stat((folder / "made").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0700u);
  ASSERT_EQ(::mkdir((folder / "open").c_str(), 0700), 0);
  ASSERT_EQ(::chmod((folder / "open").c_str(), 0755), 0);
  ASSERT_EQ(::symlink((folder / "made").c_str(), (folder / "link").c_str()), 0);
  for (const char* name : {"open/store", "link/store"}) {
    env.store_file = (folder / name).string();
    EXPECT_THAT(message_of<SecurityError>([&] { join_store(env, {}); }), HasSubstr("only this user has access"));
  }
}

TEST(OwnAddress, IsLoopbackOnOneHostOnly) {
  Environment env = environment_of_rank(0, 2, 29500);
  EXPECT_EQ(own_address(env), "127.0.0.1");
  env.master_addr = "127.0.0.2";
  env.num_nodes = 2;
  EXPECT_EQ(own_address(env).substr(0, 4), "127.") << "the end of the route to the master";
  env.master_addr.clear();
  env.store_file = "/nfs/store";
  EXPECT_EQ(own_address(env), "127.0.0.1") << "all ranks are here";
  env.local_world_size = 1;
  std::string address;
  EXPECT_THAT(message_of<ConfigError>([&] { address = own_address(env); }),
              testing::AnyOf("no error", HasSubstr("no address that the ranks of other hosts could reach")));
  EXPECT_NE(address.substr(0, 4), "127.");
}

/// Debian and Ubuntu resolve a host's own name to 127.0.1.1, which other hosts cannot reach.
TEST(OwnAddress, IsNeverLoopbackForOtherHosts) {
  char name[256] = "";
  ASSERT_EQ(::gethostname(name, sizeof name - 1), 0);
  Environment env = environment_of_rank(0, 2, 29500);
  env.num_nodes = 2;
  for (const std::string& master : {std::string(name), std::string("ip6-localhost"), std::string("localhost.")}) {
    env.master_addr = master;
    std::string address;
    EXPECT_THAT(message_of<ConfigError>([&] { address = own_address(env); }),
                testing::AnyOf("no error", HasSubstr("no address that the ranks of other hosts could reach")));
    EXPECT_NE(address.substr(0, 4), "127.") << master;
    EXPECT_NE(address, "::1") << master;
  }
}

TEST(Rendezvous, APortInUseNamesItsHolder) {
  const HostedStore hosted = host_store();
  EXPECT_THAT(message_of<ConfigError>([&] { host_store({.host = "127.0.0.1", .port = hosted.port}); }),
              AllOf(HasSubstr(text("port ", hosted.port)), HasSubstr(text("(pid ", getpid(), ")")), HasSubstr("fix:")));
  EXPECT_EQ(port_owner(1), "");
}

TEST(Rendezvous, AStoreThatIsNotThereNamesItsAddress) {
  Environment env = environment_of_rank(1, 2, 1);
  CommOptions options;
  options.init_timeout_s = 0.5;
  EXPECT_THAT(message_of<CommError>([&] { join_store(env, options); }),
              AllOf(HasSubstr("rank 1 of 2 cannot reach the store at tcp://127.0.0.1:1"), HasSubstr("fix:")));
}

/// A store that is overrun closes connections before it has greeted them: who was closed comes again.
TEST(Rendezvous, AConnectionThatIsClosedIsMadeAgain) {
  OwnedFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  const int reuse = 1;  // its closed connections keep the port for a while
  ASSERT_EQ(::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse), 0);
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&at), size), 0);
  ASSERT_EQ(::listen(listener.get(), 8), 0);
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
  const int port = ntohs(at.sin_port);
  std::atomic<int> closed = 0;
  HostedStore hosted;
  std::jthread store([&] {
    for (; closed < 2; ++closed) OwnedFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    listener = OwnedFd();
    hosted = host_store({.host = "127.0.0.1", .port = port});
  });
  CommOptions options;
  options.init_timeout_s = 30;
  join_store(environment_of_rank(1, 2, port), options)->set("x", "1");
  EXPECT_EQ(closed, 2);
}

/// As the store of the whole job the file would grow with every request.
TEST(Rendezvous, AStoreFileOnlyTellsTheAddress) {
  const TempFolder folder;
  const std::filesystem::path file = folder / "store";
  const auto join = [&](int rank) {
    Environment env = environment_of_rank(rank, 2, 0);
    env.master_addr.clear();
    env.store_is_hosted = false;
    env.store_file = file.string();
    env.secret = "mine";
    return join_store(env, {});
  };
  auto other = std::async(std::launch::async, join, 1);
  const StorePtr store = join(0), theirs = other.get();
  EXPECT_FALSE(std::filesystem::exists(file));
  store->set("key", "value");
  EXPECT_EQ(theirs->get_to_str("key"), "value");
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(Fingerprint, SurvivesTheStore) {
  const Fingerprint all{{"a", "1"}, {"b", "two\nlines\\n=x"}, {"c=", ""}};
  Fingerprint plain = all;
  plain.erase("c=");
  EXPECT_EQ(fingerprint_from_text(to_text(plain)), plain);
  EXPECT_EQ(differences(0, all, 1, all), "");
  EXPECT_EQ(differences(0, {{"a", "1"}}, 3, {{"b", "2"}}),
            "\n  a: rank 0 has 1, rank 3 has (none)\n  b: rank 0 has (none), rank 3 has 2");
  EXPECT_EQ(fingerprint_of_process(), fingerprint_of_process());
}

TEST(Fingerprint, OfAConfigHasEveryKey) {
  Config one, other;
  other.optimizer.lr = 0.5;
  EXPECT_EQ(differences(0, fingerprint_of_config(one), 1, fingerprint_of_config(one)), "");
  EXPECT_EQ(differences(0, fingerprint_of_config(one), 1, fingerprint_of_config(other)),
            "\n  optimizer.lr: rank 0 has 3e-04, rank 1 has 0.5");
}

TEST(ContextOptions, FollowTheConfig) {
  const ContextOptions options = context_options(
      {.backend = "gloo", .init_timeout_s = 7, .timeout_s = 3, .check = "strict", .deterministic = true});
  EXPECT_EQ(options.comm.check, CheckMode::strict);
  EXPECT_TRUE(options.comm.deterministic);
  EXPECT_EQ(options.comm.timeout_s, 3);
  EXPECT_EQ(options.comm.init_timeout_s, 7);
  EXPECT_EQ(options.backend, "gloo");
}

}  // namespace
}  // namespace trireme
