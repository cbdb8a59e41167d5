#pragma once
// Executes a pipeline schedule: on each rank the actions of its program, in order, with transfers in between. Every
// step runs through it, with one pipeline rank or many.
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <vector>

#include "trireme/parallel/pipeline/transfer.hpp"
#include "trireme/parallel/zero/zero.hpp"
#include "trireme/schedule/schedule.hpp"

namespace trireme {

/// What a chunk returns: the tensors for each edge that leaves it, in the order of the schedule's edges; the last chunk
/// also the loss of the microbatch, summed over its tokens, 0-dim.
struct ChunkOutput {
  ChunkOutput() = default;
  ChunkOutput(at::Tensor the_loss) : loss(std::move(the_loss)) {}             // of the last chunk
  ChunkOutput(std::vector<Tensors> of_edges) : edges(std::move(of_edges)) {}  // of another one

  std::vector<Tensors> edges{};
  at::Tensor loss{};
};

/// Computes a chunk of this rank for a microbatch. `inputs`: the tensors of each edge that leads to the chunk.
using ChunkForward = std::function<ChunkOutput(int chunk, int microbatch, const std::vector<Tensors>& inputs)>;

/// For a model in one chunk: `loss(microbatch)`.
inline ChunkForward whole_model(std::function<at::Tensor(int microbatch)> loss) {
  return [loss = std::move(loss)](int, int m, const std::vector<Tensors>&) { return ChunkOutput(loss(m)); };
}

struct MicrobatchRun {
  at::Tensor loss;        // summed over the tokens, 0-dim
  bool replayed = false;  // no hook of a parameter was called: gradients were written as in an earlier one
};

struct StepWork {
  std::int64_t step = 0;  // for error messages
  ChunkForward forward{};
  /// Called once, before the first backward, on ranks that compute a loss: the gradient of every loss, 0-dim. It is
  /// loss scale / tokens of all ranks, so gradients are summed and need no further scaling.
  std::function<at::Tensor()> loss_gradient{};
  /// Before each backward of a chunk; `last`: its last one in this step.
  std::function<void(int chunk, bool last)> before_backward{};
  /// If given, for a rank with the whole model: forward and backward of a microbatch in one call, in place of
  /// `forward`; see MicrobatchRun.
  std::function<MicrobatchRun(int microbatch, bool first, const at::Tensor& loss_gradient)> microbatch{};
  /// Transfer::begin_step; empty: all microbatches of all steps have the same shapes.
  std::function<std::int64_t(int microbatch)> shape_key{};
  /// Of the activations of every edge, for a rank without peers (FakeWorld). Empty: the senders tell them.
  std::vector<TensorShape> edge_shapes{};
};

/// When an action of the program ran, by the host's steady clock, without the time that it waited for its inputs.
struct ActionSpan {
  schedule::Action action;
  std::int64_t begin_ns = 0, end_ns = 0;
  std::int64_t waited_ns = 0;  // part of it, for communication inside the action: of tp, of ZeRO
};

struct StepOutcome {
  at::Tensor loss_sum;  // of this rank's losses in the order of its program: 0-dim, f64, on the device
  std::vector<ActionSpan> spans{};
  /// The most microbatches of a chunk that were between their forward and the gradient of their input at a time, summed
  /// over the chunks of this rank.
  int peak_live = 0;

  /// Of these actions, without what they waited inside.
  double seconds(std::initializer_list<schedule::ActionKind> kinds) const;
  /// The share of the time from the first to the last action in which none ran. On a GPU the host only starts actions,
  /// and it means nothing.
  double bubble() const;
};

/// Backward of a loss with this gradient.
void run_backward(const at::Tensor& loss, const at::Tensor& gradient);

class Executor {
 public:
  /// `schedule` is for the pipeline of `mesh`, and replay() accepts it. Chunk i of `zero` is the i-th chunk of this
  /// rank in the order of the model. Collective over the pipeline.
  Executor(schedule::Schedule schedule, Zero& zero, Mesh& mesh);
  /// Without Zero: gradients are added to the parameters' .grad(). For schedules without I and W; also for forwards
  /// only (schedule::forward_only).
  Executor(schedule::Schedule schedule, Mesh& mesh, at::Device device);

  /// Afterwards the gradients are in `zero`, and their reduction has started; without Zero, in .grad().
  StepOutcome run(const StepWork& work);

  const schedule::Schedule& schedule() const { return schedule_; }
  const schedule::Program& program() const { return program_; }
  /// The chunks of this rank, in the order of the model.
  const std::vector<int>& chunks() const { return chunks_; }

 private:
  struct Run;

  Executor(schedule::Schedule schedule, Zero* zero, Mesh& mesh, at::Device device);
  std::vector<Tensors> receive_for(const schedule::Action& action);
  void forward(const schedule::Action& action, Run& run);
  void backward(const schedule::Action& action, Run& run);
  void whole_microbatch(const schedule::Action& action, Run& run);
  struct Moment {
    std::int64_t ns = 0, waited_ns = 0;
  };
  Moment now() const;
  void add_span(Run& run, const schedule::Action& action, const Moment& begin) const;
  ZeroChunk* zero_chunk(int chunk) const;  // nullptr without Zero
  std::vector<std::vector<TransferId>> choose_prefetches() const;

  const schedule::Schedule schedule_;
  const schedule::Program program_;
  const std::vector<int> chunks_;
  const bool has_backward_;
  Zero* const zero_;
  Mesh& mesh_;
  const at::Device device_;
  Transfer transfer_;
  const std::vector<std::vector<TransferId>> prefetches_;  // by action of the program: begun before it
};

}  // namespace trireme
