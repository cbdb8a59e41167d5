#include "trireme/comm/watchdog.hpp"

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "trireme/base/stop_signals.hpp"
#include "trireme/testing/temp_folder.hpp"

namespace trireme {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// A store that can be cut off.
class CuttableStore final : public c10d::HashStore {
 public:
  bool check(const std::vector<std::string>& keys) override {
    if (cut) throw std::runtime_error("the store does not answer");
    return HashStore::check(keys);
  }
  std::atomic<bool> cut = false;
};

/// Rank 0 of `world_size`, in a call that timed out, of the group of all but the last rank.
struct LateCall {
  int world_size;
  TempFolder folder;
  c10::intrusive_ptr<CuttableStore> store = c10::make_intrusive<CuttableStore>();
  std::shared_ptr<FlightRecorder> recorder = std::make_shared<FlightRecorder>(0, world_size);
  Membership members{.name = "tp", .rank = 0, .world_ranks = {}};
  CallRecord record{};

  explicit LateCall(int world) : world_size(world) {
    for (int r = 0; r + 1 < world; ++r) members.world_ranks.push_back(r);
    members.str().copy(record.group, sizeof record.group - 1);
    record.op = Op::barrier;
    record.limit_s = 1e-9;
    recorder->begin(record, 0, members.size(), CheckMode::fast);
  }
  std::string explained() {
    CommOptions options;
    options.hang_folder = folder.path().string();
    Watchdog watchdog(store, recorder, world_size, options);
    return watchdog.explain(members, record, "Timed out").what();
  }
  void show(int rank, const FlightRecord& box, const std::vector<CallRecord>& calls = {}) {
    std::vector<std::uint8_t> bytes(sizeof box + calls.size() * sizeof(CallRecord));
    std::memcpy(bytes.data(), &box, sizeof box);
    if (!calls.empty()) std::memcpy(bytes.data() + sizeof box, calls.data(), calls.size() * sizeof(CallRecord));
    store->set(text("watchdog/shown/", rank), bytes);
  }
};

TEST(Watchdog, NamesTheRankThatDoesNotAnswerAsTheLikelyCause) {
  LateCall call(3);
  call.show(1, FlightRecorder(1, 3).snapshot());
  EXPECT_THAT(call.explained(), AllOf(HasSubstr("1 of 2 ranks arrived"), HasSubstr("missing: rank 1 ("),
                                      HasSubstr("likely cause: rank 2 does not answer"), Not(HasSubstr("cut off"))));
}

TEST(Watchdog, NamesNoRankIfTheStoreDoesNotAnswer) {
  LateCall call(3);
  call.store->cut = true;
  EXPECT_THAT(call.explained(),
              AllOf(HasSubstr("the store does not answer: this host may be cut off"), Not(HasSubstr("likely cause")),
                    Not(HasSubstr("missing: rank")), Not(HasSubstr("for rank")), Not(HasSubstr("ranks arrived\n"))));
}

TEST(Watchdog, DoesNotUseARecordThatIsOutOfRange) {
  LateCall call(8);
  std::vector<FlightRecord> bad;
  for (int r = 1; r < 7; ++r) bad.push_back(FlightRecorder(r, 8).snapshot());
  bad[0].rank = 2;
  bad[1].magic = 0;
  std::memset(bad[2].host, 'x', sizeof bad[2].host);
  bad[3].ring[5].op = static_cast<Op>(200);
  std::memset(bad[4].ring[0].group, 'x', sizeof bad[4].ring[0].group);
  bad[5].world_size = 9;
  for (int r = 1; r < 7; ++r) call.show(r, bad[static_cast<std::size_t>(r - 1)]);
  call.show(7, FlightRecorder(7, 8).snapshot());
  const std::string told = call.explained();
  for (int r = 1; r < 7; ++r) EXPECT_THAT(told, HasSubstr(text("missing: rank ", r, " does not answer")));
  EXPECT_THAT(told, Not(HasSubstr("likely cause"))) << "the good one of rank 7 is used";
}

TEST(Watchdog, WritesTheLastCallsWhenAskedAndGoesOn) {
  const LateCall call(3);
  std::optional<StopSignals> signals(std::in_place, StopSignals::Then::note);
  CommOptions options;
  options.hang_folder = call.folder.path().string();
  const Watchdog watchdog(call.store, call.recorder, call.world_size, options);
  const auto written = [&] { return std::filesystem::exists(call.folder / "rank0.txt"); };
  EXPECT_FALSE(written());
  std::raise(SIGUSR2);
  for (int i = 0; i < 1000 && !written(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_THAT(file_contents(call.folder / "rank0.txt"), HasSubstr("barrier"));
  EXPECT_EQ(StopSignals::received(), 0);
  signals.reset();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) std::signal(signal, SIG_DFL);
}

TEST(CallRecord, IsValidInsideItsRangesOnly) {
  EXPECT_TRUE(is_valid(CallRecord{}));
  std::vector<CallRecord> bad(8);
  bad[0].op = static_cast<Op>(kOps);
  bad[1].reduce = static_cast<Reduce>(4);
  bad[2].dtype = 127;
  bad[3].dims = -1;
  bad[4].sizes[2] = -1;
  bad[5].limit_s = std::numeric_limits<double>::infinity();
  std::memset(bad[6].group, 'x', sizeof bad[6].group);
  std::memset(bad[7].tag.phase, 'x', sizeof bad[7].tag.phase);
  for (std::size_t i = 0; i < bad.size(); ++i) EXPECT_FALSE(is_valid(bad[i])) << i;
  EXPECT_TRUE(is_valid(FlightRecorder(0, 1).snapshot()));
}

}  // namespace
}  // namespace trireme
