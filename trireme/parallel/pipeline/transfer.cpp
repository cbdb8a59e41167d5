#include "trireme/parallel/pipeline/transfer.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "trireme/base/error.hpp"
#include "trireme/base/memory_kind.hpp"

namespace trireme {
namespace {

using schedule::ActionKind;
using schedule::Edge;

int rank_of(const schedule::Schedule& schedule, int chunk) {
  return schedule.rank_of_chunk[static_cast<std::size_t>(chunk)];
}
int sender_of(const schedule::Schedule& schedule, const TransferId& id) {
  const Edge& edge = schedule.edges[static_cast<std::size_t>(id.edge)];
  return rank_of(schedule, id.what == TransferId::What::activations ? edge.from : edge.to);
}
int receiver_of(const schedule::Schedule& schedule, const TransferId& id) {
  const Edge& edge = schedule.edges[static_cast<std::size_t>(id.edge)];
  return rank_of(schedule, id.what == TransferId::What::activations ? edge.to : edge.from);
}

/// Of the edges with the action's chunk at this end, in their order.
std::vector<TransferId> transfers_of(const schedule::Schedule& schedule, const schedule::Action& action,
                                     int Edge::* end) {
  std::vector<TransferId> out;
  if (action.op == ActionKind::W) return out;
  const auto what = action.op == ActionKind::F ? TransferId::What::activations : TransferId::What::gradients;
  for (std::size_t e = 0; e < schedule.edges.size(); ++e)
    if (schedule.edges[e].*end == action.chunk) out.push_back({what, static_cast<int>(e), action.microbatch});
  return out;
}

void wait_for_all(std::vector<Pending>& all) {
  for (Pending& pending : all) std::move(pending).wait();
  all.clear();
}

constexpr int kSender = 0, kReceiver = 1;  // ranks of a channel's group

}  // namespace

std::vector<TransferId> received_by(const schedule::Schedule& schedule, const schedule::Action& action) {
  return transfers_of(schedule, action, action.op == ActionKind::F ? &Edge::to : &Edge::from);
}

std::vector<TransferId> sent_by(const schedule::Schedule& schedule, const schedule::Action& action) {
  return transfers_of(schedule, action, action.op == ActionKind::F ? &Edge::from : &Edge::to);
}

/// One direction between two pipeline ranks.
struct Transfer::Channel {
  struct Incoming {
    std::vector<Pending> pending;
    Tensors tensors;
  };
  using Outgoing = std::vector<Pending>;

  explicit Channel(Group& g) : group(g) {}

  Group& group;
  // Of the receiver.
  struct Expected {
    TransferId id;
    std::vector<TransferId> received_before;  // our messages that the sender had received when it sent this one
  };
  std::vector<Expected> order;              // of a step, in the order in which they are sent
  std::size_t posted = 0, arrived = 0;      // messages that we have begun to receive, and have
  std::map<TransferId, Incoming> incoming;  // those that nobody has taken yet
  // Of the sender.
  std::map<TransferId, Outgoing> outgoing;
};

Transfer::Transfer(schedule::Schedule schedule, Mesh& mesh, at::Device device)
    : schedule_(std::move(schedule)), device_(device), rank_(mesh.coord(Axis::pp)) {
  const std::vector<int>& world_ranks = mesh.group(Axis::pp).world_ranks();
  require(world_ranks.size() == static_cast<std::size_t>(schedule_.ranks()), "a schedule for ", schedule_.ranks(),
          " pipeline ranks on a mesh with ", world_ranks.size());
  // Pairs in the same order on all ranks: channel() is collective.
  std::set<std::pair<int, int>> pairs;
  for (const Edge& edge : schedule_.edges) {
    const int from = schedule_.rank_of_chunk[static_cast<std::size_t>(edge.from)],
              to = schedule_.rank_of_chunk[static_cast<std::size_t>(edge.to)];
    if (from == to) continue;
    pairs.insert({from, to});
    pairs.insert({to, from});
  }
  for (const auto& [from, to] : pairs) {
    if (from != rank_ && to != rank_) continue;
    auto channel = std::make_unique<Channel>(
        mesh.channel(world_ranks[static_cast<std::size_t>(from)], world_ranks[static_cast<std::size_t>(to)]));
    if (from == rank_) {
      to_[to] = std::move(channel);
      continue;
    }
    std::vector<TransferId> received;
    for (const schedule::Action& action : schedule_.programs[static_cast<std::size_t>(from)]) {
      for (const TransferId& id : received_by(schedule_, action))
        if (sender_of(schedule_, id) == rank_) received.push_back(id);
      for (const TransferId& id : sent_by(schedule_, action))
        if (receiver_of(schedule_, id) == rank_) channel->order.push_back({id, std::exchange(received, {})});
    }
    from_[from] = std::move(channel);
  }
  connect({pairs.begin(), pairs.end()});
}

/// A first message on every channel, by both sides at the same time: NCCL connects two ranks in their first message,
/// and blocks the host until both are there.
void Transfer::connect(const std::vector<std::pair<int, int>>& pairs) {
  const at::Tensor nothing = at::zeros({1}, at::TensorOptions(at::kLong).device(device_));
  for (const auto& [from, to] : pairs) {
    if (from == rank_) to_.at(to)->group.send(nothing, kReceiver).wait();
    if (to == rank_) from_.at(from)->group.recv_(nothing, kSender).wait();
  }
}

Transfer::~Transfer() = default;

std::string Transfer::str(const TransferId& id) const {
  const Edge& edge = schedule_.edges[static_cast<std::size_t>(id.edge)];
  return text(id.what == TransferId::What::activations ? "activations" : "gradients", " of microbatch ", id.microbatch,
              " between chunks ", edge.from, " and ", edge.to);
}

void Transfer::begin_step(std::function<std::int64_t(int)> shape_key, Shapes known) {
  shape_key_ = std::move(shape_key);
  known_ = std::move(known);
  local_.clear();
  for (auto& [rank, channel] : from_) {
    channel->posted = channel->arrived = 0;
    channel->incoming.clear();
  }
}

/// On the sender: the shapes of the first activations with this key go ahead of them; others must be the same.
void Transfer::learn_shapes(Channel& channel, const TransferId& id, const Tensors& tensors) {
  const Shapes shapes = shapes_of(tensors);
  const auto [known, is_new] = shapes_.try_emplace(key_of(id), known_.empty() ? shapes : known_);
  require(known_.empty() || known_ == shapes, str(id), " have other shapes or dtypes than those that were given");
  require(known->second == shapes, str(id), " have other shapes or dtypes than those of earlier microbatches",
          "\n  fix: pad the microbatches to one shape, or give them another shape key");
  if (!is_new || !known_.empty()) return;
  for (Pending& sent : send_shapes(shapes, channel.group, kReceiver, device_))
    channel.outgoing[id].push_back(std::move(sent));
}

void Transfer::send(const TransferId& id, const Tensors& tensors) {
  const int to = receiver_of(schedule_, id);
  const at::NoGradGuard no_grad;
  if (to == rank_) {
    Tensors handed;
    for (const at::Tensor& x : tensors) handed.push_back(x.detach().set_requires_grad(x.requires_grad()));
    local_[id] = std::move(handed);
    return;
  }
  Channel& channel = *to_.at(to);
  if (id.what == TransferId::What::activations) learn_shapes(channel, id, tensors);
  for (const at::Tensor& x : tensors)
    if (x.numel() > 0) channel.outgoing[id].push_back(channel.group.send(x.detach().contiguous(), kReceiver));
}

/// Starts to receive the next message of the channel. False if its shapes are not known, and it may not wait for them.
bool Transfer::post_next(Channel& channel, bool may_wait) {
  const TransferId& id = channel.order[channel.posted].id;
  const bool gradients = id.what == TransferId::What::gradients;
  auto known = known_.empty() ? shapes_.find(key_of(id)) : shapes_.try_emplace(key_of(id), known_).first;
  if (known == shapes_.end()) {
    if (!may_wait) return false;
    require(!gradients, str(id), " arrive before the activations were sent");
    known = shapes_.emplace(key_of(id), receive_shapes(channel.group, kSender, device_, str(id))).first;
  }
  const MemoryScope activations(MemoryKind::activations);
  Channel::Incoming in;
  for (const TensorShape& shape : known->second) {
    if (gradients && !shape.requires_grad) continue;
    const at::Tensor x = at::empty(shape.sizes, at::TensorOptions(shape.dtype).device(device_));
    if (x.numel() > 0) in.pending.push_back(channel.group.recv_(x, kSender));
    in.tensors.push_back(gradients ? x : x.set_requires_grad(shape.requires_grad));
  }
  channel.incoming.emplace(id, std::move(in));
  ++channel.posted;
  return true;
}

/// Also the messages that are sent before it.
bool Transfer::post_through(Channel& channel, const TransferId& id, bool may_wait) {
  while (!channel.incoming.contains(id)) {
    require(channel.posted < channel.order.size(), str(id), " are not sent, or were received before");
    if (!post_next(channel, may_wait)) return false;
  }
  return true;
}

void Transfer::prefetch(const TransferId& id) {
  const int from = sender_of(schedule_, id);
  if (from != rank_) post_through(*from_.at(from), id, /*may_wait=*/false);
}

Tensors Transfer::receive(const TransferId& id) {
  const int from = sender_of(schedule_, id);
  if (from == rank_) {
    auto taken = local_.extract(id);
    require(!taken.empty(), str(id), " were not computed");
    return std::move(taken.mapped());
  }
  Channel& channel = *from_.at(from);
  post_through(channel, id, /*may_wait=*/true);
  Channel::Incoming in = std::move(channel.incoming.extract(id).mapped());
  const at::NoGradGuard no_grad;
  wait_for_all(in.pending);
  // What the sender had received before is over, and its memory can be freed: on some backends a send cannot be polled.
  auto& sent = to_.at(from)->outgoing;
  const auto place =
      static_cast<std::size_t>(std::ranges::find(channel.order, id, &Channel::Expected::id) - channel.order.begin());
  for (; channel.arrived <= place; ++channel.arrived)
    for (const TransferId& theirs : channel.order[channel.arrived].received_before)
      if (auto over = sent.extract(theirs); !over.empty()) wait_for_all(over.mapped());
  return std::move(in.tensors);
}

void Transfer::release_sent() {
  for (auto& [rank, channel] : to_)
    for (auto sent = channel->outgoing.begin(); sent != channel->outgoing.end();) {
      const bool over = std::ranges::all_of(sent->second, &Pending::done);
      if (over) wait_for_all(sent->second);
      sent = over ? channel->outgoing.erase(sent) : std::next(sent);
    }
}

void Transfer::finish_step() {
  for (auto& [rank, channel] : to_) {
    for (auto& [id, pending] : channel->outgoing) wait_for_all(pending);
    channel->outgoing.clear();
  }
  for (const auto& [rank, channel] : from_)
    require(channel->incoming.empty() && channel->posted == channel->order.size(), "pipeline rank ", rank, " sent ",
            channel->order.size(), " messages, of which ", channel->posted, " were received and ",
            channel->incoming.size(), " not used");
}

}  // namespace trireme
