#include "trireme/comm/backends/shared_memory/shared_memory_group.hpp"

#include <algorithm>
#include <stdexcept>

#include <poll.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/calls/mismatch.hpp"

namespace trireme {
namespace {

/// What must be the same on both sides for the data to be what they mean.
CallRecord without_tag(CallRecord record) {
  record.tag = {};
  return record;
}

}  // namespace

bool SharedMemoryPeer::has_ended() const {
  pollfd one{.fd = process.get(), .events = POLLIN, .revents = 0};
  return ::poll(&one, 1, 0) > 0;
}

/// Waits for an exchange, or for messages.
class SharedMemoryGroup::Work final : public CommWork {
 public:
  explicit Work(SharedMemoryGroup& group) : group_(group), limit_s_(group.limit_s_) {}
  bool done() override {
    return group_.progress_->is_done(group_, [this] { return is_done(); });
  }
  void wait() override {
    group_.progress_->wait(
        group_, [this] { return is_done(); },
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(limit_s_)));
  }

  std::shared_ptr<Exchange> exchange{};
  std::vector<std::shared_ptr<MessageTransfer>> messages{};

 private:
  bool is_done() const {
    return (exchange == nullptr || exchange->is_done()) &&
           std::ranges::all_of(messages, [](const auto& message) { return message->is_done(); });
  }

  SharedMemoryGroup& group_;
  const double limit_s_;
};

SharedMemoryGroup::SharedMemoryGroup(Membership members, std::shared_ptr<FlightRecorder> recorder, CommOptions options,
                                     GroupMemory memory, std::vector<std::shared_ptr<SharedMemoryPeer>> peers,
                                     std::shared_ptr<Progress> progress, std::shared_ptr<Watchdog> watchdog)
    : Group(members, std::move(recorder), std::move(options)),
      membership_(std::make_shared<const Membership>(std::move(members))),
      memory_(std::move(memory)),
      peers_(std::move(peers)),
      progress_(std::move(progress)),
      watchdog_(std::move(watchdog)),
      limit_s_(Group::options().timeout_s),
      sends_(peers_.size()),
      receives_(peers_.size()) {
  watchdog_->add_group(membership_);
  progress_->add(*this);
}

SharedMemoryGroup::~SharedMemoryGroup() {
  progress_->remove(*this);
  memory_.leave();
  for (int r = 0; r < size(); ++r)
    if (r != rank()) peers_[static_cast<std::size_t>(r)]->bell().ring();
}

void SharedMemoryGroup::compare_calls(int rank, const CallRecord& theirs, const CallRecord& mine) const {
  const bool same =
      options().check == CheckMode::off ? same_call(without_tag(theirs), without_tag(mine)) : same_call(theirs, mine);
  if (same) return;
  if (rank < this->rank()) throw mismatch_error(str(), world_rank(rank), theirs, world_rank(this->rank()), mine);
  throw mismatch_error(str(), world_rank(this->rank()), mine, world_rank(rank), theirs);
}

std::shared_ptr<Exchange> SharedMemoryGroup::exchange(const Call& call, const CallRecord& record) {
  const auto ring = [this](int rank) { peers_[static_cast<std::size_t>(rank)]->bell().ring(); };
  const auto compare = [this, record](int rank, const CallRecord& theirs) { compare_calls(rank, theirs, record); };
  return exchanges_.emplace_back(std::make_shared<Exchange>(memory_, call, record, ring, compare));
}

std::shared_ptr<MessageTransfer> SharedMemoryGroup::transfer(const Message& message, const CallRecord& record) {
  const bool sends = message.op == Op::send;
  const auto peer = static_cast<std::size_t>(message.peer);
  const ByteStream stream = sends ? memory_.pair(rank(), message.peer) : memory_.pair(message.peer, rank());
  const auto ring = [this, peer] { peers_[peer]->bell().ring(); };
  const auto compare = [this, record](const CallRecord& sent) {
    if (!same_message(sent, record))
      throw mismatch_error(str(), world_rank(record.peer), sent, world_rank(rank()), record);
  };
  return (sends ? sends_ : receives_)[peer].emplace_back(
      std::make_shared<MessageTransfer>(stream, message, record, ring, compare));
}

std::unique_ptr<CommWork> SharedMemoryGroup::start(const Call& call, std::span<const CallRecord> records) {
  const auto need_host = [this](const at::Tensor& x) {
    if (!x.defined() || x.is_cpu()) return;
    throw ConfigError(text("group ", str(), ": a tensor on ", x.device(), ": its ranks share memory of the host",
                           "\n  fix: comm.shared_memory = false, or ranks with a GPU each"));
  };
  for (const at::Tensor& x : {call.input, call.output}) need_host(x);
  for (const Message& message : call.messages) need_host(message.tensor);
  auto work = std::make_unique<Work>(*this);
  progress_->start([&] {
    if (call.op == Op::batch) {
      for (std::size_t i = 0; i < records.size(); ++i) work->messages.push_back(transfer(call.messages[i], records[i]));
    } else if (call.op == Op::send || call.op == Op::recv) {
      const at::Tensor& tensor = call.op == Op::send ? call.input : call.output;
      work->messages.push_back(transfer({call.op, tensor, call.peer}, records.front()));
    } else {
      work->exchange = exchange(call, records.front());
    }
  });
  return work;
}

/// Every call is compared before its data is used; only the end of a step has none.
std::unique_ptr<CommWork> SharedMemoryGroup::compare(std::span<const CallRecord> records) {
  if (records.size() == 1 && records.front().op == Op::step_end) start({.op = Op::step_end}, records)->wait();
  return nullptr;
}

bool SharedMemoryGroup::advance(Queue& queue) {
  bool moved = false;
  while (!queue.empty()) {
    moved = queue.front()->advance() || moved;
    if (!queue.front()->is_done()) break;
    queue.pop_front();
  }
  return moved;
}

void SharedMemoryGroup::advance_calls(bool& moved) {
  while (!exchanges_.empty()) {
    for (const auto& one : exchanges_) {
      moved = one->write() || moved;
      if (!one->is_written()) break;
    }
    moved = exchanges_.front()->read() || moved;
    if (!exchanges_.front()->is_done()) break;
    exchanges_.pop_front();
  }
  for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
    moved = advance(sends_[peer]) || moved;
    moved = advance(receives_[peer]) || moved;
  }
}

bool SharedMemoryGroup::advance() {
  bool moved = false;
  if (error_ == nullptr) try {
      advance_calls(moved);
    } catch (const std::exception&) {
      error_ = std::current_exception();
    }
  return moved;
}

bool SharedMemoryGroup::has_calls() const {
  const auto any = [](const std::vector<Queue>& queues) {
    return std::ranges::any_of(queues, [](const Queue& queue) { return !queue.empty(); });
  };
  return error_ == nullptr && (!exchanges_.empty() || any(sends_) || any(receives_));
}

/// Whether a call waits for this rank.
bool SharedMemoryGroup::needs(int rank) const {
  const auto i = static_cast<std::size_t>(rank);
  return !sends_[i].empty() || !receives_[i].empty() || (!exchanges_.empty() && exchanges_.front()->waits_for(rank));
}

void SharedMemoryGroup::look_at_peers() {
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_at_peers_ < Progress::kLookAtPeers) return;
  looked_at_peers_ = now;
  for (int r = 0; r < size() && has_calls(); ++r) {
    if (r == rank() || !needs(r)) continue;
    const SharedMemoryPeer& peer = *peers_[static_cast<std::size_t>(r)];
    const bool ended = peer.has_ended();
    if (!ended && !memory_.has_left(r)) continue;
    advance();  // what it wrote before
    if (error_ != nullptr || !needs(r)) continue;
    error_ = std::make_exception_ptr(
        std::runtime_error(ended ? text("rank ", world_rank(r), ", pid ", peer.pid, ", has ended")
                                 : text("rank ", world_rank(r), " makes no more calls")));
  }
}

void SharedMemoryGroup::fail(const CallRecord& record, const std::exception& cause) {
  throw watchdog_->explain(*membership_, record, cause.what());
}

}  // namespace trireme
