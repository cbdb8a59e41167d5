#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "trireme/base/error.hpp"
#include "trireme/comm/backends/local_collective.hpp"
#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/comm/calls/mismatch.hpp"

namespace trireme {
namespace {

/// One collective call of a group: the last rank to arrive does the work for all, so none depends on another's wait().
struct Round {
  explicit Round(int size) : calls(static_cast<std::size_t>(size)), records(static_cast<std::size_t>(size)) {}
  std::vector<std::optional<Call>> calls;  // by rank; owned, so that a rank that unwinds does not invalidate it
  std::vector<CallRecord> records;
  int posted = 0;
  bool done = false;
};

/// A message in transit: the second of send and receive copies the data.
struct Letter {
  std::optional<at::Tensor> from, to;
  CallRecord sent, received;
  bool done = false;
};

/// State shared by the ranks of one group.
struct Room {
  explicit Room(Membership m) : members(std::move(m)) {}
  const Membership members;
  std::map<std::uint64_t, std::shared_ptr<Round>> rounds;  // by sequence number, until all have posted
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Letter>>> letters;  // by (from, to), until both have posted
};

}  // namespace

class ThreadHall {
 public:
  explicit ThreadHall(int size) : recorders_(static_cast<std::size_t>(size)) {}

  int size() const { return static_cast<int>(recorders_.size()); }
  std::mutex& mutex() { return mutex_; }

  void enter(int rank, FlightRecorder* recorder) {
    const std::scoped_lock lock(mutex_);
    recorders_[static_cast<std::size_t>(rank)] = recorder;
  }

  std::shared_ptr<Room> room(const Membership& members) {
    const std::scoped_lock lock(mutex_);
    std::shared_ptr<Room>& room = rooms_[text(members.name, "/", members.str(), "/", members.size())];
    if (room == nullptr) room = std::make_shared<Room>(members);
    return room;
  }

  /// The functions below require the mutex to be held.

  void wake() { changed_.notify_all(); }

  void fail(int rank, const std::string& why, CommError::Kind kind) {
    if (!failure_) failure_ = {rank, why, kind};
    wake();
  }

  void throw_if_failed() const {
    if (!failure_) return;
    if (failure_->kind == CommError::Kind::hang_or_mismatch) throw CommError(failure_->kind, failure_->why);
    throw CommError(failure_->kind, text("rank ", failure_->rank, " has failed: ", failure_->why));
  }

  /// Waits for `done`, which another rank sets. `missing` names the ranks that have not arrived.
  template <class Done, class Missing>
  void wait(std::unique_lock<std::mutex>& lock, const CallRecord& record, Done done, Missing missing) {
    const std::chrono::duration<double> limit(record.limit_s);
    const auto progress = [&] {
      const auto* awaited = record.awaited < 0 ? nullptr : recorders_[static_cast<std::size_t>(record.awaited)];
      return awaited == nullptr ? 0 : awaited->progress();
    };
    std::uint64_t seen = progress();
    auto deadline = std::chrono::steady_clock::now() + limit;
    while (!done()) {
      throw_if_failed();
      if (changed_.wait_until(lock, deadline) != std::cv_status::timeout || done()) continue;
      throw_if_failed();
      if (seen != std::exchange(seen, progress())) {
        deadline = std::chrono::steady_clock::now() + limit;
        continue;
      }
      std::string words =
          text(record.what(), " #", record.seq, " on group ", record.group, " timed out after ", record.limit_s, " s");
      for (int rank : missing()) {
        const FlightRecorder* recorder = recorders_[static_cast<std::size_t>(rank)];
        words += text("\n  missing: rank ", rank, ": last seen in ",
                      recorder == nullptr ? "its start" : last_call(recorder->snapshot()));
      }
      fail(-1, words, CommError::Kind::hang_or_mismatch);
      throw_if_failed();
    }
  }

 private:
  struct Failure {
    int rank;
    std::string why;
    CommError::Kind kind;
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::shared_ptr<Room>> rooms_;
  std::vector<FlightRecorder*> recorders_;
  std::optional<Failure> failure_;
};

namespace {

class ThreadGroup final : public Group {
 public:
  ThreadGroup(Membership members, std::shared_ptr<FlightRecorder> recorder, CommOptions options,
              std::shared_ptr<ThreadHall> hall)
      : Group(members, std::move(recorder), std::move(options)), hall_(std::move(hall)), room_(hall_->room(members)) {}

 protected:
  std::unique_ptr<CommWork> compare(std::span<const CallRecord> records) override {
    // Data moves only in start(), after post() has compared: this backend is always strict. Only the end of a step has
    // no start().
    if (records.size() == 1 && records.front().op == Op::step_end) start({.op = Op::step_end}, records)->wait();
    return nullptr;
  }

  [[noreturn]] void fail(const CallRecord& record, const std::exception& cause) override {
    const CommError error(CommError::Kind::peer_lost, text(record.str(), ": ", cause.what()));
    const std::scoped_lock lock(hall_->mutex());
    hall_->fail(world_ranks()[static_cast<std::size_t>(rank())], error.what(), CommError::Kind::peer_lost);
    throw error;
  }

  std::unique_ptr<CommWork> start(const Call& call, std::span<const CallRecord> records) override {
    const std::scoped_lock lock(hall_->mutex());
    hall_->throw_if_failed();
    if (call.op != Op::batch && call.op != Op::send && call.op != Op::recv) return post(call, records.front());
    auto flight = std::make_unique<Letters>(*this);
    if (call.op == Op::batch)
      for (std::size_t i = 0; i < records.size(); ++i) flight->add(post(call.messages[i], records[i]));
    else
      flight->add(post({call.op, call.op == Op::send ? call.input : call.output, call.peer}, records.front()));
    return flight;
  }

 private:
  /// Waits for one round.
  class Collective final : public CommWork {
   public:
    Collective(ThreadGroup& group, std::shared_ptr<Round> round, CallRecord record)
        : group_(group), round_(std::move(round)), record_(record) {}
    bool done() override {
      const std::scoped_lock lock(group_.hall_->mutex());
      return round_->done;
    }
    void wait() override {
      std::unique_lock lock(group_.hall_->mutex());
      group_.hall_->wait(
          lock, record_, [this] { return round_->done; },
          [this] {
            std::vector<int> missing;
            for (std::size_t r = 0; r < round_->calls.size(); ++r)
              if (!round_->calls[r]) missing.push_back(group_.world_ranks()[r]);
            return missing;
          });
    }

   private:
    ThreadGroup& group_;
    std::shared_ptr<Round> round_;
    CallRecord record_;
  };

  /// Waits for one or several messages.
  class Letters final : public CommWork {
   public:
    explicit Letters(ThreadGroup& group) : group_(group) {}
    void add(std::pair<std::shared_ptr<Letter>, CallRecord> one) { letters_.push_back(std::move(one)); }
    bool done() override {
      const std::scoped_lock lock(group_.hall_->mutex());
      return std::all_of(letters_.begin(), letters_.end(), [](const auto& one) { return one.first->done; });
    }
    void wait() override {
      std::unique_lock lock(group_.hall_->mutex());
      for (const auto& [letter, record] : letters_)
        group_.hall_->wait(
            lock, record, [&one = letter] { return one->done; },
            [this, &r = record] { return std::vector<int>{group_.world_ranks()[static_cast<std::size_t>(r.peer)]}; });
    }

   private:
    ThreadGroup& group_;
    std::vector<std::pair<std::shared_ptr<Letter>, CallRecord>> letters_;
  };

  std::unique_ptr<CommWork> post(const Call& call, const CallRecord& record) {
    std::shared_ptr<Round>& at = room_->rounds[record.seq];
    if (at == nullptr) at = std::make_shared<Round>(size());
    const std::shared_ptr<Round> round = at;
    for (std::size_t r = 0; r < round->calls.size(); ++r)
      if (round->calls[r] && !same_call(round->records[r], record))
        mismatch(static_cast<int>(r), round->records[r], rank(), record);
    round->calls[static_cast<std::size_t>(rank())] = call;
    round->records[static_cast<std::size_t>(rank())] = record;
    if (++round->posted == size()) {
      room_->rounds.erase(record.seq);
      std::vector<Call> calls;
      for (const auto& one : round->calls) calls.push_back(*one);
      do_collective(calls);
      round->done = true;
      hall_->wake();
    }
    return std::make_unique<Collective>(*this, round, record);
  }

  std::pair<std::shared_ptr<Letter>, CallRecord> post(const Message& message, const CallRecord& record) {
    const bool sends = message.op == Op::send;
    const std::pair way = sends ? std::pair{rank(), message.peer} : std::pair{message.peer, rank()};
    std::deque<std::shared_ptr<Letter>>& queue = room_->letters[way];
    const auto half_open =
        std::find_if(queue.begin(), queue.end(), [sends](const auto& l) { return sends ? !l->from : !l->to; });
    std::shared_ptr<Letter> letter = half_open == queue.end() ? nullptr : *half_open;
    if (letter == nullptr) queue.push_back(letter = std::make_shared<Letter>());
    (sends ? letter->from : letter->to) = message.tensor;
    (sends ? letter->sent : letter->received) = record;
    if (letter->from && letter->to) {
      if (!same_message(letter->sent, letter->received))
        mismatch(way.first, letter->sent, way.second, letter->received);
      const at::NoGradGuard no_grad;
      letter->to->copy_(*letter->from);
      letter->done = true;
      queue.erase(std::find(queue.begin(), queue.end(), letter));
      hall_->wake();
    }
    return {letter, record};
  }

  [[noreturn]] void mismatch(int rank_a, const CallRecord& a, int rank_b, const CallRecord& b) {
    const CommError error = mismatch_error(str(), world_ranks()[static_cast<std::size_t>(rank_a)], a,
                                           world_ranks()[static_cast<std::size_t>(rank_b)], b);
    hall_->fail(world_ranks()[static_cast<std::size_t>(rank())], error.what(), CommError::Kind::hang_or_mismatch);
    throw error;
  }

  const std::shared_ptr<ThreadHall> hall_;
  const std::shared_ptr<Room> room_;
};

}  // namespace

ThreadWorld::ThreadWorld(int rank, std::shared_ptr<ThreadHall> hall, CommOptions options)
    : World(rank, hall->size(), std::move(options), std::make_shared<FlightRecorder>(rank, hall->size())),
      hall_(std::move(hall)) {
  hall_->enter(rank, &recorder());
}

ThreadWorld::~ThreadWorld() { hall_->enter(rank(), nullptr); }

std::unique_ptr<Group> ThreadWorld::connect(Membership members) {
  return std::make_unique<ThreadGroup>(std::move(members), shared_recorder(), options(), hall_);
}

void run_worlds(int size, const CommOptions& options, const std::function<void(World&)>& body) {
  require(size >= 1, "run_ranks: ", size, " ranks");
  const auto hall = std::make_shared<ThreadHall>(size);
  std::mutex mutex;
  std::exception_ptr first;
  {
    std::vector<std::jthread> ranks;
    for (int r = 0; r < size; ++r)
      ranks.emplace_back([&, r] {
        std::string why = "an unknown exception";
        try {
          ThreadWorld world(r, hall, options);
          body(world);
          return;
        } catch (const std::exception& e) {
          why = e.what();
          const std::scoped_lock lock(mutex);
          if (!first) first = std::current_exception();
        } catch (...) {
          const std::scoped_lock lock(mutex);
          if (!first) first = std::current_exception();
        }
        const std::scoped_lock lock(hall->mutex());
        hall->fail(r, why, CommError::Kind::peer_lost);
      });
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace trireme
