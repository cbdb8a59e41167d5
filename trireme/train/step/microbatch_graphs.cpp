#include "trireme/train/step/microbatch_graphs.hpp"

#include <algorithm>
#include <vector>

#include <ATen/ops/zeros.h>

#include "trireme/base/error.hpp"
#include "trireme/kernels/matmul/grouped_linear.hpp"

namespace trireme {
namespace {

/// Steps with a shape before it is recorded. After the first one the algorithms of its products may change.
constexpr int kEagerSteps = 2;

/// Tensors of a microbatch that differ from one to the next; the same ones for every microbatch of a shape.
std::vector<at::Tensor*> tensors_of(Microbatch& microbatch) {
  ForwardContext& context = microbatch.context;
  std::vector<at::Tensor*> all{&microbatch.ids_T,    &microbatch.targets_T,         &context.samples_T,
                               &context.positions_T, &context.document_positions_T, &context.documents_bS};
  std::erase_if(all, [](const at::Tensor* x) { return !x->defined(); });
  return all;
}

/// The host must not need to know how many tokens each expert gets.
std::string why_no_graph_of_experts(const Config& config, at::Device device) {
  const ParallelismConfig& p = config.parallelism;
  const ModelConfig& m = config.model;
  if (p.ep > 1 || p.dp > 1 || p.tp > 1) return "with several ranks, the sizes of experts' inputs depend on the data";
  if (m.expert_capacity_factor > 0) return "expert_capacity_factor: experts have a product each";
  if (config.precision.param != "bfloat16") return text(config.precision.param, ": experts have a product each");
  const std::int64_t hidden = m.moe_intermediate_size > 0 ? m.moe_intermediate_size : m.intermediate_size;
  if (!kernels::has_products_of_rows_on_device(device, m.hidden_size, hidden))
    return "this GPU, or sizes that are no multiples of 8: experts have a product each";
  return "";
}

/// "", or why a microbatch cannot be a graph.
std::string why_no_graph(const Config& config, at::Device device, bool own_family) {
  const ParallelismConfig& p = config.parallelism;
  if (!device.is_cuda()) return text("the device is the ", device);
  if (p.pp > 1) return text("pp = ", p.pp, ": the host passes on what stages send");
  if (p.cp > 1) return text("cp = ", p.cp, ": the messages between ranks of cp are not recorded");
  if (p.tp > 1 && config.comm.backend == "gloo") return "comm.backend = \"gloo\": the host passes on what ranks send";
  if (p.tp > 1 && config.comm.check == "strict") return "comm.check = \"strict\": calls in a graph are not compared";
  if (p.zero > 1) return text("zero = ", p.zero, ": gradients or weights have no fixed place");
  if (!p.contiguous_gradients) return "contiguous_gradients = false: gradients have no fixed place";
  if (config.model.num_local_experts > 0)
    if (std::string why = why_no_graph_of_experts(config, device); !why.empty()) return why;
  if (config.model.attention_dropout > 0) return "attention_dropout: its kernels take their seed from the host";
  if (config.precision.param == "float16") return "the loss scale of float16 follows from each step";
  if (own_family) return text(config.model.model_type, ": custom layers may depend on the host");
  return "";
}

}  // namespace

bool uses_graphs(const Config& config, at::Device device, bool own_family) {
  const std::string& asked = config.cuda.graphs;
  if (asked == "off") return false;
  const std::string why_not = why_no_graph(config, device, own_family);
  require<ConfigError>(asked != "on" || why_not.empty(), "cuda.graphs = \"on\", but ", why_not,
                       "\n  fix: cuda.graphs = \"auto\"");
  // The sums over dp would no longer overlap backward, and the calls of tp would not be watched one by one.
  return why_not.empty() && (asked == "on" || (config.parallelism.dp == 1 && config.parallelism.tp == 1));
}

MicrobatchGraphs::Done MicrobatchGraphs::run(const Microbatch& microbatch, bool first,
                                             const at::Tensor& loss_gradient) {
  const ForwardContext& context = microbatch.context;
  // The number of documents, and with it the sizes of kernels, differs from one microbatch to the next. With some
  // microbatches in graphs and others not, each kind would need memory for its activations.
  if (context.document_bounds.defined() && !std::exchange(has_documents_, true)) release();
  if (has_documents_) return {work_(microbatch, loss_gradient), false};
  Recorded& it =
      known_[{context.batch, context.length, context.auxiliary_factor, first, context.document_positions_T.defined()}];
  if (it.last_step != context.step) ++it.steps;
  it.last_step = context.step;
  if (!it.graph && it.steps <= kEagerSteps) return {work_(microbatch, loss_gradient), false};
  const bool is_new = !it.graph;
  if (is_new) {
    record(it, microbatch, loss_gradient);
    recorded_in_ = context.step;
  } else if (recorded_in_ != context.step) {  // else the recording has counted as allocated in this step
    hidden_bytes_ = std::max(hidden_bytes_, it.graph->peak_bytes());
  }
  Microbatch from = microbatch;
  const std::vector<at::Tensor*> own = tensors_of(it.microbatch), given = tensors_of(from);
  for (std::size_t i = 0; i < own.size(); ++i) own[i]->copy_(*given[i]);
  it.loss_gradient.copy_(loss_gradient);
  it.keys->set_step(context.step);
  it.graph->replay();
  after_replay_();
  if (context.auxiliary_loss) context.auxiliary_loss(it.auxiliary);
  return {it.loss, !is_new};
}

void MicrobatchGraphs::release() {
  for (auto& [shape, it] : known_)
    if (it.graph) it.graph->release();
  known_.clear();
}

void MicrobatchGraphs::record(Recorded& it, const Microbatch& microbatch, const at::Tensor& loss_gradient) {
  it.microbatch = microbatch;
  for (at::Tensor* x : tensors_of(it.microbatch)) *x = x->clone();
  it.loss_gradient = loss_gradient.clone();
  it.keys = std::make_shared<StepKeys>(device_);
  it.microbatch.context.step_keys = it.keys;
  it.auxiliary = at::zeros({}, at::TensorOptions(at::kDouble).device(device_));
  it.microbatch.context.auxiliary_loss = [&it](const at::Tensor& sum) { it.auxiliary.add_(sum); };
  it.graph = std::make_unique<kernels::CudaGraph>();
  it.graph->capture([&] {
    it.auxiliary.zero_();
    it.loss = work_(it.microbatch, it.loss_gradient);
  });
}

}  // namespace trireme
