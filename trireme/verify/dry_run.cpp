#include "trireme/verify/dry_run.hpp"

#include <algorithm>

#include <ATen/ops/zeros.h>

#include "trireme/base/error.hpp"
#include "trireme/base/stopwatch.hpp"
#include "trireme/comm/backends/fake_world.hpp"
#include "trireme/config/schema/dense_grid.hpp"
#include "trireme/train/setup/component_options.hpp"
#include "trireme/train/setup/dtypes.hpp"
#include "trireme/train/step/batches.hpp"
#include "trireme/train/step/step_agreement.hpp"
#include "trireme/train/step/training_model.hpp"
#include "trireme/train/trace/device_memory.hpp"
#include "trireme/verify/verify_reference.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kShownTokens = 96;

std::string first_sample_text(const Microbatch& microbatch, const Batches& batches) {
  const at::Tensor ids = microbatch.ids_T.narrow(0, 0, std::min(kShownTokens, microbatch.context.length)).cpu();
  std::vector<data::TokenId> tokens;
  for (std::int64_t i = 0; i < ids.size(0); ++i)
    tokens.push_back(static_cast<data::TokenId>(ids[i].item<std::int64_t>()));
  const auto& tokenizer = batches.data().tokenizer();
  const bool decodes = tokenizer && std::ranges::all_of(tokens, [&](data::TokenId id) {
                         return static_cast<std::int64_t>(id) < tokenizer->vocab_size();
                       });
  if (decodes) return tokenizer->decode(tokens);
  std::string out = "token ids";
  for (const data::TokenId id : tokens) out += text(" ", id);
  return out;
}

/// Of what pipeline stages send to each other, as Decoder::hidden returns it.
TensorShape hidden_shape(const Config& config, const Microbatch& microbatch) {
  const ParallelismConfig& p = config.parallelism;
  const std::int64_t tokens = microbatch.ids_T.size(0) / (p.sequence_parallel ? p.tp : 1);
  return {scalar_type(config.precision.param), /*requires_grad=*/true, {tokens, config.model.hidden_size}};
}

}  // namespace

DryRun dry_run(Config config, at::Device device, const ProcessSetup& process) {
  resolve_dtypes(config, device);
  const Grid grid = config::dense_grid(config.parallelism);
  DryRun out;
  const at::Tensor first = at::zeros({1}, at::TensorOptions(device));  // a GPU is set up by its first tensor
  DeviceMemory memory(device, process);
  for (int stage = 0; stage < grid.degree(Axis::pp); ++stage) {
    DryStage& now = out.stages.emplace_back();
    now.rank = grid.size() / grid.degree(Axis::pp) * stage;
    FakeWorld world(now.rank, grid.size());
    Mesh mesh = mesh_for(config, world);
    Batches batches(config, mesh, device);
    std::vector<std::string> warnings;
    memory.take_peak();
    TrainingModel model(config, mesh, device, static_cast<int>(batches.num_microbatches()), /*resumes=*/false,
                        warnings);
    const Stopwatch time;
    const std::vector<Microbatch> microbatches = batches.take(1);
    TokenCount tokens(microbatches, /*failed=*/false, mesh, device);
    const StepOutcome outcome = model.run_step({.step = 1,
                                                .microbatches = microbatches,
                                                .loss_gradient = [&] { return 1 / tokens.total().clamp_min(1); },
                                                .uses_graphs = false,
                                                .edge_shapes = {hidden_shape(config, microbatches.at(0))}});
    static_cast<void>(tokens.total());  // only the last stage of a pipeline has read it
    model.zero().finish_gradients();
    model.zero().update({.lr = 0, .max_norm = config.training.max_norm}).settle();
    model.zero().finish_gathers();
    static_cast<void>(outcome.loss_sum.item<double>());  // a GPU has finished
    now.seconds = time.seconds();
    now.peak_bytes = memory.take_peak();
    if (stage > 0) continue;
    out.data = batches.data().describe();
    out.warnings = batches.data().warnings();
    out.warnings.insert(out.warnings.end(), warnings.begin(), warnings.end());
    out.first_sample = first_sample_text(microbatches.at(0), batches);
  }
  return out;
}

}  // namespace trireme
