#pragma once
// Moves activations and gradients between the chunks of a pipeline.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/mesh.hpp"
#include "trireme/parallel/pipeline/tensor_shape.hpp"
#include "trireme/schedule/schedule.hpp"

namespace trireme {

/// The activations of a microbatch on an edge of the schedule, or their gradients in the opposite direction.
struct TransferId {
  enum class What { activations, gradients };
  What what = What::activations;
  int edge = 0;  // index in Schedule::edges
  int microbatch = 0;
  auto operator<=>(const TransferId&) const = default;
};

/// What an action needs from other chunks, and what others need from it: by edge of its chunk, in the schedule's order.
std::vector<TransferId> received_by(const schedule::Schedule& schedule, const schedule::Action& action);
std::vector<TransferId> sent_by(const schedule::Schedule& schedule, const schedule::Action& action);

// Note [Channels of a pipeline]
// A channel carries everything that one pipeline rank sends to another. Its messages are sent in the order in which the
// sender's program produces them, and received in that order: both sides know it, because both have the schedule. Each
// direction has its own group, so no message waits behind one of the opposite direction, and no send is waited for
// before it is known to be over. So every schedule that replay() accepts runs without a deadlock, on every backend.
//
// The first activations of an edge with a given shape key are preceded by their shapes; later ones have the same.

/// Chunks on the same rank hand over their tensors without a message.
class Transfer {
 public:
  /// Collective over the pipeline: connects the ranks that communicate. `device`: of the received tensors.
  Transfer(schedule::Schedule schedule, Mesh& mesh, at::Device device);
  ~Transfer();

  /// Before each step. Microbatches with the same key have the same shapes on every edge; all ranks give the same keys.
  /// `known`: the shapes of every edge; empty: the senders tell them.
  void begin_step(std::function<std::int64_t(int microbatch)> shape_key, std::vector<TensorShape> known = {});

  /// Starts to send. Activations that require a gradient get one back, in the same order.
  void send(const TransferId& id, const Tensors& tensors);
  /// Starts to receive, unless that would wait for shapes: the transfer overlaps with what follows.
  void prefetch(const TransferId& id);
  /// Without a graph; activations require a gradient if those of the sender do.
  Tensors receive(const TransferId& id);
  /// Frees the memory of what has been sent, as far as that is known.
  void release_sent();
  /// Waits until everything has been sent.
  void finish_step();

 private:
  struct Channel;
  using Shapes = std::vector<TensorShape>;
  using ShapeKey = std::pair<int, std::int64_t>;  // edge, key of the microbatch

  void connect(const std::vector<std::pair<int, int>>& pairs);
  ShapeKey key_of(const TransferId& id) const { return {id.edge, shape_key_(id.microbatch)}; }
  std::string str(const TransferId& id) const;
  void learn_shapes(Channel& channel, const TransferId& id, const Tensors& tensors);
  bool post_next(Channel& channel, bool may_wait);
  bool post_through(Channel& channel, const TransferId& id, bool may_wait);

  const schedule::Schedule schedule_;
  const at::Device device_;
  const int rank_;                                     // in the pipeline
  std::map<int, std::unique_ptr<Channel>> to_, from_;  // by pipeline rank
  std::map<TransferId, Tensors> local_;                // between two chunks of this rank
  std::map<ShapeKey, Shapes> shapes_;
  std::function<std::int64_t(int)> shape_key_;
  Shapes known_;  // of every edge; empty: senders tell them
};

}  // namespace trireme
