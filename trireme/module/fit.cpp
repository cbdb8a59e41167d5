#include "trireme/module/fit.hpp"

#include "trireme/base/error.hpp"
#include "trireme/base/ranks_of_job.hpp"
#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/comm/mesh.hpp"
#include "trireme/data/sampling/permutation.hpp"
#include "trireme/module/fit_copies.hpp"
#include "trireme/module/fit_rank.hpp"
#include "trireme/module/sync_batch_norm.hpp"

namespace trireme {

namespace fit_detail {

ModelOutput output_of(const at::Tensor& logits) { return {logits, {}}; }
ModelOutput output_of(const ModelInputs& named) {
  const auto find = [&](const char* name) { return named.contains(name) ? named.at(name) : at::Tensor(); };
  return {find("logits"), find("loss")};
}
ModelInputs by_name(const Samples& samples) {
  require<ConfigError>(samples.names.size() == samples.inputs.size(), "fit: the model takes its inputs by name, but ",
                       samples.names.size(), " of ", samples.inputs.size(), " inputs of the dataset have one\n",
                       "  fix: Samples::names, one per input");
  ModelInputs out;
  for (std::size_t i = 0; i < samples.inputs.size(); ++i) out[samples.names[i]] = samples.inputs[i];
  if (samples.targets.defined()) out["labels"] = samples.targets;
  return out;
}
void throw_wrong_inputs(std::size_t count) {
  throw ConfigError(text("fit: the dataset has ", count, " inputs, but the model's forward does not take as many\n",
                         "  fix: a forward with up to three tensors, or one that takes a ModelInputs"));
}

}  // namespace fit_detail

namespace {

void check(FitModel& model, const FitJob& job) {
  const FitOptions& options = job.options;
  require<ConfigError>(options.epochs > 0 && options.batch_size > 0, "fit: ", options.epochs,
                       " epochs with a batch of ", options.batch_size, ": both must be >= 1");
  require<ConfigError>(job.train.size() > 0 && job.validation.size() > 0, "fit: ", job.train.size(), " samples, ",
                       job.validation.size(), " for validation: both need at least one");
  require<ConfigError>(options.validate_every >= 0 && options.checkpoint_every > 0, "fit: validate_every ",
                       options.validate_every, ", checkpoint_every ", options.checkpoint_every,
                       ": must be >= 0 and >= 1");
  require<ConfigError>(!options.optimizer_of_groups == !options.parameter_group,
                       "fit: parameter_group and optimizer_of_groups belong together\n  fix: give both, or neither");
  require<ConfigError>(options.compare_replicas_every >= 0, "fit: compare_replicas_every ",
                       options.compare_replicas_every, ": must be a number of steps, or 0 for never");
  const bool has_parts = options.parallel && (options.parallel->p_type == ParallelismType::PIPELINE ||
                                              options.parallel->config_fsdp.sharding != Sharding::no_shard);
  require<ConfigError>(options.compare_replicas_every == 0 || !has_parts, "fit: compare_replicas_every ",
                       options.compare_replicas_every, " with ", has_parts ? str(*options.parallel) : "",
                       ": every rank keeps another part of the model, so there is nothing to compare",
                       "\n  fix: 0, or Sharding::no_shard");
  if (options.parallel && options.parallel->p_type == ParallelismType::PIPELINE) {
    const torch::nn::Sequential stages = model.stages();
    require<ConfigError>(!stages.is_empty(), "fit: a pipeline needs a torch::nn::Sequential, whose children are its ",
                         "stages\n  fix: make the model one, or use trireme::Pipeline");
    require<ConfigError>(stages->size() >= job.devices.size(), "fit: a pipeline of ", stages->size(), " layers on ",
                         job.devices.size(), " devices: each needs at least one\n  fix: nb_device of at most ",
                         stages->size());
    const int asked = options.parallel->config_pipeline.microbatches;
    const std::int64_t microbatches = asked > 0 ? asked : std::ssize(job.devices);
    for (const auto& child : stages->modules(/*include_self=*/false))
      require<ConfigError>(microbatches == 1 || dynamic_cast<const SyncBatchNormImpl*>(child.get()) == nullptr,
                           "fit: SyncBatchNorm in a pipeline of ", microbatches, " microbatches: its statistics would ",
                           "be those of a microbatch, and the losses depend on their number\n",
                           "  fix: ParallelismType::FSDP; config_pipeline.microbatches = 1; or torch::nn::BatchNorm, ",
                           "if the statistics of a microbatch are meant");
  }
  if (options.mesh) {
    const int along = options.mesh->group(axis_of(options)).size(), ranks = options.mesh->world_group().size();
    require<ConfigError>(along == ranks && static_cast<std::size_t>(ranks) == job.devices.size(),
                         "fit: ", job.devices.size(), " devices, and a mesh of ", ranks, " ranks, ", along, " along ",
                         axis_of(options) == Axis::pp ? "pp" : "dp",
                         "\n  fix: as many ranks as devices, all along that axis; a device may be named several times");
  } else {
    require<ConfigError>(options.alone || ranks_of_this_job() == 1, "fit: this process is one of ", ranks_of_this_job(),
                         " ranks, and has no mesh: every rank would train a copy of its own\n",
                         "  fix: FitOptions::mesh, such as &run->mesh(); or FitOptions::alone, if that is meant");
    for (const at::Device& device : job.devices)
      require<ConfigError>(device.is_cpu() || job.devices.size() == 1, "fit: ", job.devices.size(),
                           " devices with GPUs, and this process is alone\n",
                           "  fix: start one rank per GPU (trireme launch -n ", job.devices.size(),
                           " -- PROGRAM), and give fit() their mesh: FitOptions::mesh");
  }
}

at::Device first_device() { return devices_of({})[0]; }

}  // namespace

FitResult fit(FitModel& model, const std::shared_ptr<const Dataset>& train,
              const std::shared_ptr<const Dataset>& validation, const FitLoss& loss, const OptimizerMaker& optimizer,
              const FitOptions& options) {
  const FitJob job{
      *train,  *validation,
      loss,    optimizer,
      options, options.parallel ? devices_of(*options.parallel) : std::vector{options.device.value_or(first_device())}};
  check(model, job);
  const auto count = static_cast<int>(job.devices.size());
  if (options.mesh) {
    const at::Device device = job.devices[static_cast<std::size_t>(options.mesh->rank())];
    const Trained trained = train_on_rank(*options.mesh, device, model, job);
    restore(model.module(), trained.state, device);
    return trained.result;
  }
  std::vector<std::unique_ptr<FitModel>> copies;
  if (count > 1)
    for (int i = 0; i < count; ++i) copies.push_back(copy_of(model));
  Trained trained;
  run_ranks(count, [&](World& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    Mesh mesh(Grid::dense(axis_of(options) == Axis::pp ? Degrees{.pp = count} : Degrees{.dp = count}), world);
    Trained own = train_on_rank(mesh, job.devices[rank], count > 1 ? *copies[rank] : model, job);
    if (rank == 0) trained = std::move(own);
  });
  restore(model.module(), trained.state, job.devices[0]);
  return trained.result;
}

CrossValidation cross_validate(int k, FitModel& model, const std::shared_ptr<const Dataset>& data, const FitLoss& loss,
                               const OptimizerMaker& optimizer, const FitOptions& options) {
  require<ConfigError>(k >= 2 && data->size() >= k, "cross_validate: ", k, " folds of ", data->size(),
                       " samples: must be at least 2, and at most one per sample");
  const data::Permutation permutation(RandomStream(options.seed, "folds"), 0, static_cast<std::uint64_t>(data->size()));
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < data->size(); ++i)
    all.push_back(static_cast<std::int64_t>(permutation(static_cast<std::uint64_t>(i))));
  CrossValidation out;
  for (int fold = 0; fold < k; ++fold) {
    std::vector<std::int64_t> rest;
    for (int other = 0; other < k; ++other) {
      if (other == fold) continue;
      const std::vector<std::int64_t> part = part_of_step(all, other, k);
      rest.insert(rest.end(), part.begin(), part.end());
    }
    const std::unique_ptr<FitModel> its = copy_of(model);
    FitOptions own = options;
    if (!options.checkpoints.empty()) own.checkpoints = options.checkpoints / text("fold-", fold);
    out.folds.push_back(fit(*its, subset(data, rest), subset(data, part_of_step(all, fold, k)), loss, optimizer, own));
  }
  return out;
}

double CrossValidation::mean_loss() const {
  double sum = 0;
  for (const FitResult& fold : folds) sum += fold.validation_loss;
  return sum / static_cast<double>(folds.size());
}
double CrossValidation::mean_accuracy() const {
  double sum = 0;
  for (const FitResult& fold : folds) sum += fold.validation_accuracy;
  return sum / static_cast<double>(folds.size());
}

}  // namespace trireme
