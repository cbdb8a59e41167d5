#include "trireme/parallel/pipeline/executor.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include "trireme/base/error.hpp"
#include "trireme/base/memory_kind.hpp"
#include "trireme/base/stopwatch.hpp"
#include "trireme/schedule/dependencies.hpp"

namespace trireme {
namespace {

using schedule::Action;
using schedule::ActionKind;

std::vector<int> chunks_of_rank(const schedule::Schedule& schedule, int rank) {
  std::vector<int> chunks;
  for (int c = 0; c < schedule.chunks(); ++c)
    if (schedule.rank_of_chunk[static_cast<std::size_t>(c)] == rank) chunks.push_back(c);
  return chunks;
}

/// What backward needs of a microbatch after its forward. The outputs themselves may be freed once they are sent.
struct Held {
  std::vector<Tensors> inputs;         // by edge; the gradients arrive in them
  torch::autograd::edge_list outputs;  // where the gradients of the outputs that require one enter the graph
  torch::autograd::edge_list loss;     // one entry, or none
};

void add_root(torch::autograd::edge_list& roots, const at::Tensor& x) {
  if (x.defined() && x.requires_grad()) roots.push_back(torch::autograd::impl::gradient_edge(x));
}

}  // namespace

double StepOutcome::seconds(std::initializer_list<ActionKind> kinds) const {
  std::int64_t ns = 0;
  for (const ActionSpan& span : spans)
    if (std::ranges::find(kinds, span.action.op) != kinds.end()) ns += span.end_ns - span.begin_ns - span.waited_ns;
  return static_cast<double>(ns) * 1e-9;
}

double StepOutcome::bubble() const {
  if (spans.empty()) return 0;
  std::int64_t busy = 0;
  for (const ActionSpan& span : spans) busy += span.end_ns - span.begin_ns;
  const std::int64_t all = spans.back().end_ns - spans.front().begin_ns;
  return all > 0 ? 1 - static_cast<double>(busy) / static_cast<double>(all) : 0;
}

/// The state of one step.
struct Executor::Run {
  const StepWork& work;
  StepOutcome out;
  std::map<std::pair<int, int>, Held> held;  // by chunk and microbatch
  std::map<int, int> weight_gradients_left;  // by chunk: actions that compute them
  at::Tensor loss_gradient;
};

Executor::Executor(schedule::Schedule schedule, Zero& zero, Mesh& mesh)
    : Executor(std::move(schedule), &zero, mesh, zero.parts()[0]->partition.tensor_options().device()) {
  require(chunks_.size() == zero.num_chunks(), "schedule ", schedule_.name, ": this rank has ", chunks_.size(),
          " chunks, its parameters are in ", zero.num_chunks());
  for (const int chunk : chunks_)
    require(std::ranges::any_of(program_, [&](const Action& a) { return a.chunk == chunk && a.op != ActionKind::F; }),
            "schedule ", schedule_.name, ": a program without a backward of chunk ", chunk);
}

Executor::Executor(schedule::Schedule schedule, Mesh& mesh, at::Device device)
    : Executor(std::move(schedule), nullptr, mesh, device) {
  for (const Action& action : program_)
    require(action.op != ActionKind::I && action.op != ActionKind::W, "schedule ", schedule_.name, ": action ",
            str(action), " computes a part of a backward, which needs Zero");
}

Executor::Executor(schedule::Schedule schedule, Zero* zero, Mesh& mesh, at::Device device)
    : schedule_(std::move(schedule)),
      program_(schedule_.programs.at(static_cast<std::size_t>(mesh.coord(Axis::pp)))),
      chunks_(chunks_of_rank(schedule_, mesh.coord(Axis::pp))),
      has_backward_(std::ranges::any_of(program_, [](const Action& a) { return a.op != ActionKind::F; })),
      zero_(zero),
      mesh_(mesh),
      device_(device),
      transfer_(schedule_, mesh, device),
      prefetches_(choose_prefetches()) {
  for (const Action& action : program_)
    require(std::ranges::find(chunks_, action.chunk) != chunks_.end(), "schedule ", schedule_.name, ": action ",
            str(action), " of a chunk that is on another rank");
}

ZeroChunk* Executor::zero_chunk(int chunk) const {
  if (zero_ == nullptr) return nullptr;
  return &zero_->chunk(static_cast<std::size_t>(std::ranges::find(chunks_, chunk) - chunks_.begin()));
}

/// The inputs of the next action travel during this one, unless they depend on it. On a GPU a receive occupies the
/// device until the message is there, and whatever synchronizes with the device (loading a kernel, freeing memory)
/// waits for it: so nothing may be received early that needs what this rank is about to do.
std::vector<std::vector<TransferId>> Executor::choose_prefetches() const {
  const std::map<Action, int> awaited = schedule::last_awaited(schedule_, mesh_.coord(Axis::pp));
  std::vector<std::vector<TransferId>> out(program_.size());
  for (std::size_t i = 0; i + 1 < program_.size(); ++i)
    for (const TransferId& id : received_by(schedule_, program_[i + 1])) {
      const schedule::Edge& edge = schedule_.edges[static_cast<std::size_t>(id.edge)];
      const bool forward = id.what == TransferId::What::activations;
      for (const ActionKind op : {ActionKind::F, ActionKind::B, ActionKind::I}) {
        const auto sender = awaited.find({op, forward ? edge.from : edge.to, id.microbatch});
        if ((op == ActionKind::F) == forward && sender != awaited.end() && sender->second < static_cast<int>(i))
          out[i].push_back(id);
      }
    }
  return out;
}

std::vector<Tensors> Executor::receive_for(const Action& action) {
  std::vector<Tensors> inputs;
  for (const TransferId& id : received_by(schedule_, action)) inputs.push_back(transfer_.receive(id));
  return inputs;
}

Executor::Moment Executor::now() const { return {steady_ns(), mesh_.world().recorder().waited_ns()}; }

void Executor::add_span(Run& run, const Action& action, const Moment& begin) const {
  const Moment end = now();
  run.out.spans.push_back({action, begin.ns, end.ns, end.waited_ns - begin.waited_ns});
}

void Executor::forward(const Action& action, Run& run) {
  Held held{.inputs = receive_for(action), .outputs = {}, .loss = {}};
  const Moment begin = now();
  ChunkOutput output;
  {
    const MemoryScope activations(MemoryKind::activations);
    output = run.work.forward(action.chunk, action.microbatch, held.inputs);
  }
  add_span(run, action, begin);
  const std::vector<TransferId> sent = sent_by(schedule_, action);
  require(output.edges.size() == sent.size(), str(action), ": a result for ", output.edges.size(), " edges, not ",
          sent.size());
  if (output.loss.defined()) run.out.loss_sum.add_(output.loss.detach());
  add_root(held.loss, output.loss);
  for (std::size_t i = 0; i < sent.size(); ++i) {
    transfer_.send(sent[i], output.edges[i]);
    for (const at::Tensor& x : output.edges[i]) add_root(held.outputs, x);
  }
  if (!has_backward_) return;
  run.held[{action.chunk, action.microbatch}] = std::move(held);
  run.out.peak_live = std::max(run.out.peak_live, static_cast<int>(run.held.size()));
}

/// The gradients of the inputs, and those of the weights unless they are deferred.
void Executor::backward(const Action& action, Run& run) {
  auto node = run.held.extract({action.chunk, action.microbatch});
  require(!node.empty(), str(action), " comes before its forward");
  Held& held = node.mapped();
  Tensors gradients;
  for (Tensors& of_edge : receive_for(action)) gradients.insert(gradients.end(), of_edge.begin(), of_edge.end());
  const Moment begin = now();
  require(gradients.size() == held.outputs.size(), str(action), ": ", gradients.size(), " gradients for ",
          held.outputs.size(), " outputs");
  torch::autograd::edge_list roots = std::move(held.outputs);
  if (!held.loss.empty()) {
    if (!run.loss_gradient.defined()) run.loss_gradient = run.work.loss_gradient();
    roots.push_back(held.loss[0]);
    gradients.push_back(run.loss_gradient.to(held.loss[0].function->input_metadata(held.loss[0].input_nr).dtype()));
  }
  ZeroChunk* const chunk = zero_chunk(action.chunk);
  const bool deferred = action.op == ActionKind::I;
  const bool last = !deferred && --run.weight_gradients_left[action.chunk] == 0;
  if (run.work.before_backward) run.work.before_backward(action.chunk, last);
  if (deferred)
    chunk->begin_deferral(action.microbatch);
  else if (chunk != nullptr)
    chunk->begin_microbatch(last);
  if (!roots.empty())
    torch::autograd::Engine::get_default_engine().execute(roots, gradients, /*keep_graph=*/false,
                                                          /*create_graph=*/false, /*accumulate_grad=*/true);
  if (deferred)
    chunk->end_deferral();
  else if (chunk != nullptr)
    chunk->end_microbatch();
  add_span(run, action, begin);
  const std::vector<TransferId> sent = sent_by(schedule_, action);
  for (std::size_t i = 0; i < sent.size(); ++i) {
    Tensors to_send;
    for (at::Tensor& x : held.inputs[i]) {
      if (!x.requires_grad()) continue;
      to_send.push_back(x.grad().defined() ? x.grad() : at::zeros_like(x));  // zero: the chunk did not use it
      x.mutable_grad() = at::Tensor();
    }
    transfer_.send(sent[i], to_send);
  }
}

void run_backward(const at::Tensor& loss, const at::Tensor& gradient) {
  torch::autograd::Engine::get_default_engine().execute({torch::autograd::impl::gradient_edge(loss)},
                                                        {gradient.to(loss.scalar_type())}, /*keep_graph=*/false,
                                                        /*create_graph=*/false, /*accumulate_grad=*/true);
}

/// A forward, and the backward that follows it.
void Executor::whole_microbatch(const Action& action, Run& run) {
  const Moment begin = now();
  if (!run.loss_gradient.defined()) run.loss_gradient = run.work.loss_gradient();
  ZeroChunk& chunk = *zero_chunk(action.chunk);
  const bool first = run.out.spans.empty();
  chunk.begin_microbatch(--run.weight_gradients_left[action.chunk] == 0);
  const MicrobatchRun done = run.work.microbatch(action.microbatch, first, run.loss_gradient);
  if (done.replayed) chunk.replayed();
  run.out.loss_sum.add_(done.loss.detach());
  chunk.end_microbatch();
  run.out.peak_live = 1;
  add_span(run, {ActionKind::B, action.chunk, action.microbatch}, begin);
}

StepOutcome Executor::run(const StepWork& work) {
  Run run{.work = work,
          .out = {.loss_sum = at::zeros({}, at::TensorOptions(at::kDouble).device(device_))},
          .held = {},
          .weight_gradients_left = {},
          .loss_gradient = {}};
  for (const Action& action : program_)
    if (action.op == ActionKind::B || action.op == ActionKind::W) ++run.weight_gradients_left[action.chunk];
  transfer_.begin_step(work.shape_key ? work.shape_key : [](int) { return std::int64_t{0}; }, work.edge_shapes);
  for (std::size_t i = 0; i < program_.size(); ++i) {
    const Action& action = program_[i];
    if (work.microbatch) {
      require(zero_ != nullptr && schedule_.chunks() == 1, "whole microbatches in a schedule of ", schedule_.chunks(),
              " chunks: must be one, with Zero");
      mesh_.tag({work.step, "backward"});
      if (action.op == ActionKind::F) whole_microbatch(action, run);
      continue;
    }
    mesh_.tag({work.step, action.op == ActionKind::F ? "forward" : "backward"});
    for (const TransferId& id : prefetches_[i]) transfer_.prefetch(id);
    switch (action.op) {
      case ActionKind::F: forward(action, run); break;
      case ActionKind::B:
      case ActionKind::I: backward(action, run); break;
      case ActionKind::W: {
        const Moment begin = now();
        ZeroChunk& chunk = *zero_chunk(action.chunk);
        chunk.begin_microbatch(--run.weight_gradients_left[action.chunk] == 0);
        chunk.run_deferred(action.microbatch);
        chunk.end_microbatch();
        add_span(run, action, begin);
        break;
      }
    }
    transfer_.release_sent();
  }
  transfer_.finish_step();
  require(run.held.empty(), run.held.size(), " forwards have no backward in the program");
  return std::move(run.out);
}

}  // namespace trireme
