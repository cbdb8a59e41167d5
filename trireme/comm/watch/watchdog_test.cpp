#include "trireme/comm/watch/watchdog.hpp"

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

/// Whoever hosts it may have stood still for some seconds.
TEST(Watchdog, AnswersAgainWhenTheStoreAnswersAgain) {
  const LateCall call(3);
  CommOptions options;
  options.hang_folder = call.folder.path().string();
  const Watchdog watchdog(call.store, call.recorder, call.world_size, options);
  call.store->cut = true;
  std::this_thread::sleep_for(2 * Watchdog::beat(call.world_size));
  call.store->cut = false;
  call.store->set("watchdog/alarm", std::vector<std::uint8_t>{'1'});
  const auto answered = [&] { return call.store->check({"watchdog/shown/0"}); };
  for (int i = 0; i < 1000 && !answered(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(answered());
}

TEST(Watchdog, NamesNoRankIfTheStoreDoesNotAnswer) {
  LateCall call(3);
  call.store->cut = true;
  EXPECT_THAT(call.explained(),
              AllOf(HasSubstr("the store does not answer: this host may be cut off"), Not(HasSubstr("likely cause")),
                    Not(HasSubstr("missing: rank")), Not(HasSubstr("for rank")), Not(HasSubstr("ranks arrived\n"))));
}

/// Counts what is read of the calls of ranks.
class CountingStore final : public c10d::HashStore {
 public:
  std::vector<std::uint8_t> get(const std::string& key) override {
    auto value = HashStore::get(key);
    if (key.starts_with("watchdog/shown/")) ++shown;
    read_bytes += value.size();
    return value;
  }
  std::atomic<std::size_t> shown = 0, read_bytes = 0;
};

/// A world of recorders, all in the same call but for one that has made another call, and one that is a call behind.
struct LargeHang {
  static constexpr int kWorld = 300, kOther = 77, kBehind = 200;
  TempFolder folder;
  c10::intrusive_ptr<CountingStore> store = c10::make_intrusive<CountingStore>();
  std::vector<std::shared_ptr<FlightRecorder>> recorders;
  std::vector<CallRecord> last;

  explicit LargeHang(bool differs) {
    for (int r = 0; r < kWorld; ++r) {
      recorders.push_back(std::make_shared<FlightRecorder>(r, kWorld));
      const int calls = r == kBehind ? 200 : 201;
      for (int i = 1; i <= calls; ++i) {
        CallRecord call;
        members(r).str().copy(call.group, sizeof call.group - 1);
        call.seq = static_cast<std::uint64_t>(i);
        call.op = differs && r == kOther && i == 201 ? Op::all_gather : Op::all_reduce;
        call.limit_s = 1e-9;
        recorders.back()->begin(call, r, kWorld, CheckMode::fast);
        if (i == calls)
          last.push_back(call);
        else
          recorders.back()->finish(call);
      }
    }
  }
  static Membership members(int rank) {
    Membership out{.name = "world", .rank = rank, .world_ranks = {}};
    for (int r = 0; r < kWorld; ++r) out.world_ranks.push_back(r);
    return out;
  }
  /// What each of `ranks` ranks that wait says. The watchdogs of all of them answer the alarm.
  std::vector<std::string> explained(const std::vector<int>& ranks) {
    CommOptions options;
    options.hang_folder = folder.path().string();
    std::vector<std::unique_ptr<Watchdog>> watchdogs;
    for (int r = 0; r < kWorld; ++r)
      watchdogs.push_back(std::make_unique<Watchdog>(store, recorders[r], kWorld, options));
    std::vector<std::string> out(ranks.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < ranks.size(); ++i)
      threads.emplace_back([&, i] {
        const auto r = static_cast<std::size_t>(ranks[i]);
        out[i] = watchdogs[r]->explain(members(ranks[i]), last[r], "Timed out").what();
      });
    for (std::thread& thread : threads) thread.join();
    return out;
  }
};

TEST(Watchdog, InALargeWorldOneRankReadsTheCallsOfThoseThatDiffer) {
  LargeHang hang(/*differs=*/true);
  const std::vector<std::string> told = hang.explained({0, 1, 77, 299});
  for (const std::string& each : told)
    EXPECT_THAT(each, AllOf(HasSubstr("did not make the same call"), HasSubstr("rank 77: #201 all_gather")));
  EXPECT_LE(hang.store->shown, 3U) << "one of each kind: the others, rank 77, the one behind";
  EXPECT_LT(hang.store->read_bytes, 1'000'000U) << "before: " << 4 * 300 * 201 * sizeof(CallRecord);
}

TEST(Watchdog, InALargeWorldAllRanksNameTheOneThatIsMissing) {
  LargeHang hang(/*differs=*/false);
  for (const std::string& each : hang.explained({0, 150}))
    EXPECT_THAT(each, AllOf(HasSubstr("299 of 300 ranks arrived"), HasSubstr("missing: rank 200 ("),
                            HasSubstr("all_reduce"), HasSubstr("seq 200")));
}

TEST(HangSummary, IsReadAsItWasWrittenAndNothingElseIs) {
  FlightRecorder recorder(3, 100);
  CallRecord call;
  std::strcpy(call.group, "dp{0,2}");
  call.seq = 7;
  call.op = Op::all_reduce;
  recorder.begin(call, 0, 2, CheckMode::fast);
  const RankSummary summary = summary_of(recorder.snapshot(), recorder.step_calls());
  const std::vector<std::uint8_t> bytes = to_bytes(summary);
  const std::optional<RankSummary> read = summary_from(bytes);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->rank, 3);
  EXPECT_EQ(read->host, summary.host);
  EXPECT_THAT(read->last_call, HasSubstr("all_reduce"));
  EXPECT_TRUE(has_arrived(*read, call));
  ++call.seq;
  EXPECT_FALSE(has_arrived(*read, call));
  std::strcpy(call.group, "dp{1,3}");
  call.seq = 1;
  EXPECT_FALSE(has_arrived(*read, call));
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(summary_from(std::span(bytes).first(size)).has_value() &&
                 summary_from(std::span(bytes).first(size))->groups.size() == summary.groups.size());
  std::vector<std::uint8_t> forged = bytes;
  forged[0] ^= 1;
  EXPECT_FALSE(summary_from(forged));
  EXPECT_LT(bytes.size(), 1024U);
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
  // The numbers of rows differ between the ranks.
  const Call uneven{.op = Op::all_to_all,
                    .input = at::ones({3, 2}),
                    .output = at::ones({5, 2}),
                    .send_counts = {1, 2},
                    .recv_counts = {1, 4}};
  EXPECT_TRUE(is_valid(record_of(uneven)));
}

}  // namespace
}  // namespace trireme
