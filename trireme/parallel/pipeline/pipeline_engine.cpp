#include "trireme/parallel/pipeline/pipeline_engine.hpp"

#include <algorithm>
#include <utility>

#include <ATen/ops/scalar_tensor.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.hpp"
#include "trireme/base/fnv.hpp"
#include "trireme/schedule/replay.hpp"

namespace trireme {
namespace {

std::size_t index(int i) { return static_cast<std::size_t>(i); }

/// What decides the shapes of the tensors that depend on it.
std::int64_t shape_hash(const at::Tensor& x) {
  std::string words = text(static_cast<int>(x.scalar_type()), " ", x.requires_grad());
  for (const std::int64_t size : x.sizes()) words += text(" ", size);
  return static_cast<std::int64_t>(fnv1a(words));
}

/// Changes when parameters are frozen or thawed: other tensors need gradients then.
std::int64_t trained_hash(const Recording& recording) {
  std::string words;
  for (const RecordedNode& node : recording.nodes)
    if (node.block != nullptr && node.block->is_here())
      for (const at::Tensor& parameter : node.block->parameters()) words += parameter.requires_grad() ? '1' : '0';
  return static_cast<std::int64_t>(fnv1a(words));
}

/// The microbatches of a batch have the same entries, in the same place. As far as this rank sees.
void check_alike(const std::vector<TensorDict>& microbatches, at::Device device) {
  require<ConfigError>(!microbatches.empty(), "a batch without microbatches: there must be at least 1");
  for (std::size_t m = 0; m < microbatches.size(); ++m) {
    require<ConfigError>(microbatches[m].keys() == microbatches[0].keys(), "microbatch ", m, " has the entries ",
                         in_braces(microbatches[m].keys()), ", microbatch 0 has ", in_braces(microbatches[0].keys()));
    for (const auto& [key, value] : microbatches[m])
      require<ConfigError>(!value.is_tensor() || value.tensor().device().type() == device.type(), "entry '", key,
                           "' of microbatch ", m, " is on ", value.is_tensor() ? value.tensor().device().str() : "",
                           ", the device of the pipeline is ", device);
  }
}

}  // namespace

/// A batch, and the model as it was recorded with it.
struct PipelineEngine::Batch {
  const std::vector<TensorDict>& microbatches;
  Recording recording;
  std::vector<std::string> lines;          // of the recording, and the number of microbatches
  std::map<std::string, int> owners{};     // of the entries
  std::vector<std::int64_t> shape_keys{};  // of the microbatches

  /// Collective over the pipeline.
  void compare(PipelineP2P& p2p);
  std::string plan_key(bool backward) const;
};

void PipelineEngine::Batch::compare(PipelineP2P& p2p) {
  check_same_lines(lines, p2p);
  std::vector<std::int64_t> mine{trained_hash(recording)};
  for (const TensorDict& microbatch : microbatches)
    for (const auto& [key, value] : microbatch) {
      mine.push_back(place_of(value));
      mine.push_back(value.is_tensor() ? shape_hash(value.tensor()) : 0);
    }
  const auto by_rank = p2p.gather(mine);
  std::size_t at = 1;
  for (std::size_t m = 0; m < microbatches.size(); ++m) {
    std::string shapes;
    for (const auto& of_rank : by_rank) shapes += text(of_rank[0], " ");
    for (const auto& [key, value] : microbatches[m]) {
      std::vector<std::int64_t> places;
      for (const auto& of_rank : by_rank) {
        places.push_back(of_rank[at]);
        shapes += text(of_rank[at + 1], " ");
      }
      at += 2;
      const int owner = owner_of(text("entry '", key, "' of microbatch ", m), places);
      const int first = owners.try_emplace(key, owner).first->second;
      require<ConfigError>(owner == first, "entry '", key, "' is on pipeline rank ", first,
                           " in microbatch 0, and on rank ", owner, " in microbatch ", m,
                           "\n  fix: keep an entry on one rank for all microbatches");
    }
    shape_keys.push_back(static_cast<std::int64_t>(fnv1a(shapes)));
  }
}

std::string PipelineEngine::Batch::plan_key(bool backward) const {
  std::string key = backward ? "train\n" : "evaluate\n";
  for (const auto& [entry, owner] : owners) key += text(entry, " on ", owner, "\n");
  for (const std::string& line : lines) key += line + "\n";
  return key;
}

/// How a model is executed: what each chunk computes, and what crosses each edge.
struct PipelineEngine::Plan {
  std::vector<std::vector<int>> nodes_of_chunk;
  std::vector<std::vector<RecordedValue>> values_of_edge;  // by edge of the schedule
  int chunk_of_loss = 0, rank_of_loss = 0;
  Executor executor;

  ChunkOutput compute(int chunk, const Recording& recording, const TensorDict& microbatch,
                      const std::vector<Tensors>& inputs) const;
};

ChunkOutput PipelineEngine::Plan::compute(int chunk, const Recording& recording, const TensorDict& microbatch,
                                          const std::vector<Tensors>& inputs) const {
  std::map<RecordedValue, at::Tensor> values;
  const std::vector<schedule::Edge>& edges = executor.schedule().edges;
  auto input = inputs.begin();
  for (std::size_t e = 0; e < edges.size(); ++e) {
    if (edges[e].to != chunk) continue;
    for (std::size_t i = 0; i < values_of_edge[e].size(); ++i) values[values_of_edge[e][i]] = (*input)[i];
    ++input;
  }
  for (const int n : nodes_of_chunk[index(chunk)]) {
    const RecordedNode& node = recording.nodes[index(n)];
    if (node.block == nullptr) {
      values[{n, 0}] = microbatch[node.key].tensor();
      continue;
    }
    Tensors arguments;
    for (const RecordedValue& value : node.inputs) arguments.push_back(values.at(value));
    const Tensors results = node.block->compute(arguments);
    for (std::size_t i = 0; i < results.size(); ++i) values[{n, static_cast<int>(i)}] = results[i];
  }
  ChunkOutput output;
  for (std::size_t e = 0; e < edges.size(); ++e) {
    if (edges[e].from != chunk) continue;
    output.edges.emplace_back();
    for (const RecordedValue& value : values_of_edge[e]) output.edges.back().push_back(values.at(value));
  }
  if (chunk == chunk_of_loss) output.loss = values.at(recording.loss);
  return output;
}

PipelineEngine::PipelineEngine(PipelineP2P& p2p, MakeSchedule make_schedule)
    : p2p_(p2p), make_schedule_(make_schedule) {}
PipelineEngine::~PipelineEngine() = default;

AllForwardAllBackward::AllForwardAllBackward(PipelineP2P& p2p)
    : PipelineEngine(p2p, schedule::all_forward_all_backward) {}
OneForwardOneBackward::OneForwardOneBackward(PipelineP2P& p2p) : PipelineEngine(p2p, schedule::one_f_one_b) {}

/// Collective over the pipeline: the executor connects the ranks that communicate.
std::unique_ptr<PipelineEngine::Plan> PipelineEngine::make_plan(const Batch& batch, bool backward) const {
  const std::vector<RecordedNode>& nodes = batch.recording.nodes;
  // Entries that no block takes are left out: their rank need not take part.
  std::vector<bool> used(nodes.size());
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    used[n] = used[n] || nodes[n].block != nullptr;
    for (const RecordedValue& value : nodes[n].inputs) used[index(value.node)] = true;
  }
  std::vector<int> kept, place(nodes.size(), -1);  // nodes of the graph, and where a node is among them
  std::vector<int> ranks;
  std::vector<schedule::Edge> edges;
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    if (!used[n]) continue;
    place[n] = static_cast<int>(kept.size());
    kept.push_back(static_cast<int>(n));
    ranks.push_back(nodes[n].block != nullptr ? nodes[n].block->pp_rank() : batch.owners.at(nodes[n].key));
    for (const RecordedValue& value : nodes[n].inputs) edges.push_back({place[index(value.node)], place[n]});
  }
  const schedule::JoinedNodes joined = schedule::join_nodes(p2p_.size(), ranks, edges);
  const auto chunk_of = [&](int node) { return joined.chunk_of_node[index(place[index(node)])]; };

  std::vector<std::vector<int>> nodes_of_chunk(joined.graph.rank_of_chunk.size());
  std::vector<std::vector<RecordedValue>> values_of_edge(joined.graph.edges.size());
  for (const int n : kept) {
    nodes_of_chunk[index(chunk_of(n))].push_back(n);
    for (const RecordedValue& value : nodes[index(n)].inputs) {
      const schedule::Edge edge{chunk_of(value.node), chunk_of(n)};
      if (edge.from == edge.to) continue;
      auto& values = values_of_edge[static_cast<std::size_t>(std::ranges::find(joined.graph.edges, edge) -
                                                             joined.graph.edges.begin())];
      if (std::ranges::find(values, value) == values.end()) values.push_back(value);
    }
  }
  const int microbatches = static_cast<int>(batch.microbatches.size());
  schedule::Schedule schedule = make_schedule_(joined.graph, microbatches);
  schedule::replay(schedule);  // throws if it could not be executed
  if (!backward) schedule = schedule::forward_only(std::move(schedule), microbatches);
  const int chunk_of_loss = chunk_of(batch.recording.loss.node);
  return std::unique_ptr<Plan>(new Plan{.nodes_of_chunk = std::move(nodes_of_chunk),
                                        .values_of_edge = std::move(values_of_edge),
                                        .chunk_of_loss = chunk_of_loss,
                                        .rank_of_loss = joined.graph.rank_of_chunk[index(chunk_of_loss)],
                                        .executor = Executor(std::move(schedule), p2p_.mesh(), p2p_.device())});
}

BatchOutcome PipelineEngine::run(const BlockForward& forward, const std::vector<TensorDict>& microbatches,
                                 bool backward, double loss_gradient) {
  check_alike(microbatches, p2p_.device());
  Batch batch{.microbatches = microbatches,
              .recording =
                  [&] {
                    BlockRecorder recorder(p2p_);
                    const TensorOrPointer loss = forward(recorder.record_batch(microbatches[0]));
                    return std::move(recorder).finish(loss);
                  }(),
              .lines = {}};
  batch.lines = batch.recording.lines();
  batch.lines.insert(batch.lines.begin(), text("the batch has ", microbatches.size(), " microbatches"));
  batch.compare(p2p_);
  std::unique_ptr<Plan>& plan = plans_[batch.plan_key(backward)];
  if (plan == nullptr) plan = make_plan(batch, backward);
  last_ = plan.get();

  const c10::AutoGradMode grad_mode(backward);
  const PipelineBlockImpl& loss_block = *batch.recording.nodes[index(batch.recording.loss.node)].block;
  BatchOutcome outcome{
      .losses = std::vector<TensorOrPointer>(microbatches.size(), TensorPointer{.group_rank = plan->rank_of_loss}),
      .step = {}};
  const auto compute = [&](int chunk, int m, const std::vector<Tensors>& inputs) {
    ChunkOutput output = plan->compute(chunk, batch.recording, microbatches[index(m)], inputs);
    if (output.loss.defined()) {
      require<ConfigError>(output.loss.dim() == 0 && output.loss.is_floating_point(), loss_block.str(),
                           " returned a loss that is not one number: ", output.loss.sizes(), " of ",
                           c10::toString(output.loss.scalar_type()));
      require<ConfigError>(!backward || output.loss.requires_grad(), loss_block.str(),
                           " returned a loss that depends on no parameter that requires a gradient");
      outcome.losses[index(m)] = output.loss.detach();
    }
    return output;
  };
  // Also on ranks that have nothing to do: what is compared between ranks has the same tag then.
  p2p_.mesh().tag({++step_, backward ? "backward" : "forward"});
  outcome.step = plan->executor.run(
      {.step = step_,
       .forward = compute,
       .loss_gradient =
           [&] { return at::scalar_tensor(loss_gradient, at::TensorOptions(at::kDouble).device(p2p_.device())); },
       .shape_key = [&](int m) { return batch.shape_keys[index(m)]; }});
  return outcome;
}

BatchOutcome PipelineEngine::train_batch(const BlockForward& forward, const std::vector<TensorDict>& microbatches,
                                         double loss_gradient) {
  return run(forward, microbatches, /*backward=*/true, loss_gradient);
}

BatchOutcome PipelineEngine::evaluate_batch(const BlockForward& forward, const std::vector<TensorDict>& microbatches) {
  return run(forward, microbatches, /*backward=*/false, 0);
}

const schedule::Schedule& PipelineEngine::schedule() const {
  require(last_ != nullptr, "an engine has no schedule before its first batch");
  return last_->executor.schedule();
}

}  // namespace trireme
