#include "trireme/inference/evaluate.hpp"

#include <algorithm>

#include <ATen/ops/zeros.h>

#include "trireme/base/error.hpp"
#include "trireme/config/rules/training_rules.hpp"
#include "trireme/config/rules/validate.hpp"
#include "trireme/config/schema/dense_grid.hpp"
#include "trireme/config/schema/fields.hpp"
#include "trireme/train/setup/dtypes.hpp"
#include "trireme/train/setup/rank_setup.hpp"
#include "trireme/train/step/batches.hpp"
#include "trireme/train/step/training_model.hpp"

namespace trireme {

Config evaluation_config(const ModelConfig& model, const std::string& checkpoint, const EvaluationData& data,
                         const ParallelismConfig& layout, const std::string& dtype) {
  config::LoadedConfig loaded;
  Config& c = loaded.config;
  c.model = model;
  // The model is as it is: no key of it is left to be derived.
  for (const config::Field& field : config::fields(c))
    if (field.key.starts_with("model.")) loaded.origins[field.key] = {config::Origin::Kind::hf, {}};
  c.model.init = "checkpoint:" + checkpoint;
  c.model.dtype = dtype;
  c.parallelism = layout;
  c.tokenizer.path = data.tokenizer;
  c.data = {data.scopes};
  c.data[0].sources = {DataSource{.path = "synthetic"}};  // trained on nothing
  c.training.seq_len = data.seq_len;
  c.training.micro_batch_size = data.micro_batch_size;
  c.training.grad_accum = 1;
  c.validation = {.interval = 1, .samples = data.samples, .fraction = 0, .sources = data.files};
  const int ranks = config::dense_grid(layout).size();
  config::check_config(loaded, {.ranks = ranks, .how = text(ranks, " ranks"), .ranks_of_a_host = ranks});
  check_inputs(c);
  return c;
}

Evaluation evaluate(Config config, Mesh& mesh, at::Device device) {
  resolve_dtypes(config, device);
  const at::NoGradGuard no_grad;
  Batches batches(config, mesh, device);
  std::vector<std::string> notes;
  TrainingModel model(config, mesh, device, /*microbatches=*/1, /*resumes=*/false, notes,
                      /*forward_only=*/true);
  at::Tensor sums = at::zeros({2}, at::TensorOptions(at::kDouble).device(device));
  std::int64_t valid = 0;
  sums[0] += model.evaluate(batches.num_validation_batches(), [&](std::int64_t b) {
    Microbatch batch = batches.validation_batch(b);
    valid += batch.valid;
    return batch;
  });
  model.zero().finish_gathers();
  if (mesh.coord(Axis::pp) == 0) sums[1] += valid;  // the same on all ranks of the pipeline
  sums = mesh.world_group().all_reduce_(sums).wait().cpu();
  const double tokens = sums[1].item<double>();
  // Ranks of tp have the same tokens.
  const auto copies = static_cast<double>(mesh.grid().degree(Axis::tp));
  require<DataError>(tokens > 0, "not one token of the data has a label");
  const std::int64_t num_samples = batches.data().validation()->size();
  return {.loss = sums[0].item<double>() / tokens,
          .tokens = static_cast<std::int64_t>(tokens / copies),
          .samples = num_samples};
}

}  // namespace trireme
