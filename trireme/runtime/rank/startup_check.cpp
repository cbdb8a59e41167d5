#include "trireme/runtime/rank/startup_check.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/runtime/environment/port_owner.hpp"
#include "trireme/runtime/environment/wait_notes.hpp"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

std::string ranks_text(const std::vector<int>& ranks) {
  std::string words;
  for (std::size_t i = 0; i < ranks.size() && i < 32; ++i) words += text(i == 0 ? "" : ", ", ranks[i]);
  return ranks.empty() ? "none" : ranks.size() > 32 ? text(words, ", ... (", ranks.size(), ")") : words;
}

class StartupCheck {
 public:
  StartupCheck(StorePtr store, int rank, int world_size, const Fingerprint& fingerprint, double timeout_s,
               const RankDevice& device)
      : store_(std::move(store)),
        device_(device),
        rank_(rank),
        world_size_(world_size),
        fingerprint_(fingerprint),
        timeout_s_(timeout_s),
        deadline_(Clock::now() + std::chrono::milliseconds(static_cast<std::int64_t>(timeout_s * 1000))) {}

  void run() {
    try {
      meet();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& e) {
      throw CommError(
          CommError::Kind::peer_lost,
          text("rank ", rank_, " of ", world_size_, " lost the store during startup: ", first_line(e.what()),
               "\n  fix: find out why the process that hosts it (rank 0, or the launcher) has ended"));
    }
  }

  /// So that a rank with a larger world size sees this one's fingerprint.
  void be_the_only_one() { store_->set(key("here", rank_), to_text(fingerprint_)); }

  /// After run().
  StartupResult result() { return {.devices_are_shared = !device_.id.empty() && store_->add(kSharedDevices, 0) > 0}; }

 private:
  static std::string key(const char* what, int rank) { return text("startup/", what, "/", rank); }
  static constexpr const char* kOver = "startup/over";
  static constexpr const char* kSharedDevices = "startup/shared devices";
  /// How the startup check ended for all ranks: stored as this character followed by the reason. The first one holds.
  enum class Verdict : char { all_alike = 'A', ranks_differ = 'C', ranks_missing = 'H' };

  void meet() {
    if (store_->add(key("count", rank_), 1) > 1)
      throw ConfigError(text("rank ", rank_, " of ", world_size_, " has joined this job already\n",
                             "  two jobs were started on one store, or two processes as one rank\n",
                             "  fix: give each job its own port (--master HOST:PORT, or MASTER_PORT)"));
    store_->set(key("here", rank_), to_text(fingerprint_));
    store_->add("startup/came", 1);
    wait_for(key("here", 0));
    const std::string lines =
        differences(0, fingerprint_from_text(store_->get_to_str(key("here", 0))), rank_, fingerprint_);
    if (!lines.empty())
      end_for_all(Verdict::ranks_differ,
                  text("rank ", rank_, " differs from rank 0, so they cannot train together", lines,
                       "\n  fix: start all ranks with the same program, libtorch, config and settings"),
                  world_size_);
    register_device();
    // A counter, not a key of each rank: what a rank asks for must not grow with the number of ranks.
    if (store_->add("startup/alike", 1) == world_size_) verdict_of_all(Verdict::all_alike, "");
    wait_for(kOver);
  }

  /// NCCL needs a separate GPU for each rank; otherwise it hangs or fails far from the cause. Which GPU that is, is not
  /// told by its number: a scheduler may give each rank its own cuda:0.
  void register_device() {
    if (device_.id.empty()) return;
    const std::string owner = store_->compareSet("startup/device/" + device_.id, "", std::to_string(rank_));
    if (owner == std::to_string(rank_)) return;
    store_->add(kSharedDevices, 1);
    if (!device_.is_shared)
      end_for_all(Verdict::ranks_differ,
                  text("ranks ", owner, " and ", rank_, " have the same GPU (UUID ", device_.id,
                       "); NCCL allows one rank per GPU\n  fix: start as many ranks per host as it has GPUs, each with "
                       "its own in CUDA_VISIBLE_DEVICES or all with all of them; or for tests comm.share_gpu = true or "
                       "comm.backend = \"gloo\" (both slow)"),
                  world_size_);
  }

  /// Returns when `key` exists, or the verdict that all ranks are alike; the details are asked for only if they are
  /// needed for a message.
  void wait_for(const std::string& key) {
    // All ranks ask all the time: the load on the store must not grow with their number.
    const auto longest = std::chrono::milliseconds(std::max(50, world_size_ / 10));
    for (auto pause = std::chrono::milliseconds(1);; pause = std::min(2 * pause, longest)) {
      if (store_->check({kOver})) return act_on(store_->get_to_str(kOver), world_size_);
      if (key != kOver && store_->check({key})) return;
      if (Clock::now() >= deadline_) break;
      notes_.tell([&] { return who_is_awaited(); });
      std::this_thread::sleep_for(pause);
    }
    // One of them lists the missing ranks for all.
    if (store_->add("startup/lists", 1) > 1)
      for (const auto until = Clock::now() + std::chrono::seconds(2) + 10 * longest; Clock::now() < until;
           std::this_thread::sleep_for(longest))
        if (store_->check({kOver})) return act_on(store_->get_to_str(kOver), world_size_);
    std::vector<int> came, missing = absent();
    for (int r = 0; r < world_size_; ++r)
      if (std::ranges::find(missing, r) == missing.end()) came.push_back(r);
    end_for_all(Verdict::ranks_missing,
                text("after ", timeout_s_, " s ", came.size(), " of ", world_size_,
                     " ranks have joined\n  joined: ", ranks_text(came), "\n  missing: ", ranks_text(missing),
                     "\n  fix: start the missing ranks, or raise comm.init_timeout_s"),
                static_cast<int>(came.size()));
  }

  /// By name in a small world; else a number, which is one request.
  std::string who_is_awaited() {
    constexpr int kNamed = 64;
    if (world_size_ > kNamed) {
      const std::int64_t missing = world_size_ - store_->add("startup/came", 0);
      if (missing > 0) return text(missing, missing == 1 ? " rank" : " ranks", " of ", world_size_);
    } else if (const std::vector<int> missing = absent(); !missing.empty()) {
      return text("rank", missing.size() == 1 ? " " : "s ", ranks_text(missing));
    }
    return "the others to compare their settings";
  }

  std::vector<int> absent() {
    std::vector<int> ranks;
    add_absent(0, world_size_, ranks);
    return ranks;
  }

  /// One request for a range whose ranks have all come.
  void add_absent(int begin, int end, std::vector<int>& ranks) {
    std::vector<std::string> keys;
    for (int r = begin; r < end; ++r) keys.push_back(key("here", r));
    if (store_->check(keys)) return;
    if (end - begin == 1) return ranks.push_back(begin);
    const int middle = begin + (end - begin) / 2;
    add_absent(begin, middle, ranks);
    add_absent(middle, end, ranks);
  }

  /// Returns if all were found to be alike meanwhile.
  void end_for_all(Verdict verdict, const std::string& why, int present) {
    act_on(verdict_of_all(verdict, why), present);
  }

  std::string verdict_of_all(Verdict verdict, const std::string& why) {
    return store_->compareSet(kOver, "", static_cast<char>(verdict) + why);
  }

  void act_on(const std::string& over, int present) {
    if (over.empty() || over[0] != static_cast<char>(Verdict::all_alike)) leave(over, present);
  }

  /// Rank 0 may host the store, which ends with it: it leaves after the others have read the reason, or after a
  /// timeout.
  [[noreturn]] void leave(const std::string& over, int present) {
    constexpr std::chrono::seconds kForLateOnes(2);
    const auto until = Clock::now() + kForLateOnes;
    store_->add("startup/left", 1);
    while (rank_ == 0 && store_->add("startup/left", 0) < present && Clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const std::string why = over.empty() ? "the store holds no reason" : over.substr(1);
    if (!over.empty() && over[0] == static_cast<char>(Verdict::ranks_differ)) throw ConfigError(why);
    throw CommError(CommError::Kind::hang_or_mismatch,
                    text(why, "\n  rank=", rank_, "/", world_size_, " | waiting for the others to start"));
  }

  const StorePtr store_;
  const RankDevice device_;
  const int rank_, world_size_;
  const Fingerprint& fingerprint_;
  const double timeout_s_;
  const Clock::time_point deadline_;
  WaitNotes notes_{text("rank ", rank_, " of ", world_size_), timeout_s_};
};

}  // namespace

StartupResult check_startup(const StorePtr& store, int rank, int world_size, const Fingerprint& fingerprint,
                            const CommOptions& options, const RankDevice& device) {
  Fingerprint whole = fingerprint;
  whole["world size"] = std::to_string(world_size);
  StartupCheck check(store, rank, world_size, whole, options.init_timeout_s, device);
  if (world_size == 1) {
    check.be_the_only_one();
    return {};
  }
  check.run();
  return check.result();
}

}  // namespace trireme
