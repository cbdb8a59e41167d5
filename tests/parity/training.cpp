#include "tests/parity/training.hpp"

#include <cmath>
#include <mutex>

#include <ATen/ATen.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/thread_world.hpp"
#include "trireme/engine/executor.hpp"
#include "trireme/model/decoder.hpp"
#include "trireme/nn/full_tensor.hpp"
#include "trireme/nn/init.hpp"
#include "trireme/nn/init_scope.hpp"
#include "trireme/schedule/generate.hpp"
#include "trireme/train/checkpoint_saver.hpp"
#include "trireme/train/load_state.hpp"

namespace trireme::parity {
namespace {

constexpr std::uint64_t kSeed = 5;
constexpr double kBeta1 = 0.9, kBeta2 = 0.95, kEps = 1e-6, kDecay = 0.1, kMomentum = 0.8;

double lr_of(const TrainingCell& cell, int step) { return (cell.optimizer == "sgd" ? 0.05 : 0.01) / (1 + 0.3 * step); }

/// Samples that each ignore a different number of targets, one of them all: ranks have unequal token counts.
struct Samples {
  at::Tensor ids_BT, targets_BT;
};
Samples samples_of(const TrainingCell& cell, int step) {
  const Cell& c = cell.base;
  const at::Tensor all =
      at::remainder(at::arange(c.batch * (c.length + 1)) * (37 + 2 * step) + 11 * step, c.model.vocab_size)
          .view({c.batch, c.length + 1});
  Samples out{all.narrow(1, 0, c.length).contiguous(), all.narrow(1, 1, c.length).clone()};
  for (std::int64_t b = 0; b < c.batch; ++b) {
    const std::int64_t ignored = b == 1 ? c.length : (b * 5 + step) % (c.length - 1);
    out.targets_BT[b].narrow(0, 0, ignored).fill_(-100);
  }
  return out;
}

InitOptions init_options(const TrainingCell& cell) {
  return {.seed = kSeed, .scheme = InitScheme::gpt2, .range = 0.2, .layers = cell.base.model.num_hidden_layers};
}

/// The summed loss of rows [first, first + count) of a step.
at::Tensor loss_sum(Decoder& decoder, const Samples& samples, std::int64_t first, std::int64_t count, int step) {
  ForwardContext context = whole_samples(count, samples.ids_BT.size(1), first);
  context.seed = kSeed;
  context.step = step;
  return decoder
      .loss(samples.ids_BT.narrow(0, first, count).reshape(-1), samples.targets_BT.narrow(0, first, count).reshape(-1),
            context, {.tile_tokens = 7})
      .loss;
}

void add_whole_buckets(Named& out, const Zero& zero, const std::string& prefix,
                       const std::function<at::Tensor(std::size_t b)>& own_part) {
  const Partition& partition = zero.partition();
  std::map<std::string, at::Tensor> by_name;
  for (std::size_t b = 0; b < partition.num_buckets(); ++b) {
    const at::Tensor bucket = partition.shards().all_gather(own_part(b).detach().contiguous()).wait();
    for (const FlatSlot& slot : partition.bucket(b).slots) {
      const Param& param = partition.params()[slot.item];
      by_name[param.name] =
          gather_full_tensor(bucket.narrow(0, slot.offset, slot.numel).view(param.value.sizes()).clone(), param.spec,
                             partition.mesh())
              .value;
    }
  }
  for (std::size_t i = partition.params().size(); i-- > 0;)  // in registration order
    out.emplace_back(prefix + partition.params()[i].name, by_name.at(partition.params()[i].name));
}

double norm_of(const Named& tensors) {
  double squares = 0;
  for (const auto& [name, tensor] : tensors) squares += tensor.square().sum().item<double>();
  return std::sqrt(squares);
}

Outcome train_rank(const TrainingCell& cell, Mesh& mesh) {
  const Cell& c = cell.base;
  const InitScope scope(at::kCPU, at::kDouble);
  Decoder decoder(c.model, {mesh, c.sequence_parallel});
  decoder.set_recompute(c.recompute);
  set_paths(decoder);
  ZeroOptions options = cell.zero;
  options.accumulate = options.reduce = at::kDouble;
  const UnitPlan units = decoder.unit_plan({.layers_per_unit = cell.layers_per_unit});
  Zero zero(params_of(decoder), units, mesh, options,
            {.optimizer = {.kind = parse_optimizer(cell.optimizer),
                           .beta1 = kBeta1,
                           .beta2 = kBeta2,
                           .eps = kEps,
                           .weight_decay = kDecay,
                           .momentum = kMomentum},
             .master = at::kDouble,
             .states = at::kDouble},
            random_values(mesh, init_options(cell)));
  decoder.use_units(&zero.chunk(), units);
  Executor executor(schedule::one_f_one_b(0, 1, cell.accumulation), zero, mesh);
  Group& dp = mesh.token_group();
  const std::int64_t each = c.batch / dp.size() / cell.accumulation;
  if (!cell.load_from.empty()) {
    const checkpoint::Reader reader(cell.load_from);
    load_state(reader, zero);
    state_is_loaded(zero, reader.manifest().training.optimizer_steps);
  }
  Outcome out;
  for (int step = cell.first_step; step < cell.steps; ++step) {
    const Samples samples = samples_of(cell, step);
    const auto first_row = [&](int m) { return (m * dp.size() + dp.rank()) * each; };
    std::int64_t count = 0;
    for (int m = 0; m < cell.accumulation; ++m)
      count += samples.targets_BT.narrow(0, first_row(m), each).ne(-100).sum().item<std::int64_t>();
    const at::Tensor all = dp.all_reduce(at::tensor({count})).wait().to(at::kDouble);
    const StepOutcome outcome =
        executor.run({.step = step,
                      .forward = [&](int m) { return loss_sum(decoder, samples, first_row(m), each, step); },
                      .loss_gradient = [&] { return 1 / all[0]; }});
    zero.finish_gradients();
    mesh.end_step();
    const double norm = zero.update({.lr = lr_of(cell, step), .max_norm = cell.max_norm}).settle();
    if (step == 1) {  // inspecting the model between two steps changes nothing
      const at::NoGradGuard no_grad;
      loss_sum(decoder, samples, 0, each, step);
    }
    out.losses.push_back((dp.all_reduce(outcome.loss_sum.view({1})).wait()[0] / all[0]).item<double>());
    if (step == cell.first_step) {
      add_whole_buckets(out.gradients, zero, "", [&](std::size_t b) { return zero.gradients().shard(b); });
      out.gradient_norm = norm;
    } else {
      out.losses.push_back(norm);  // compared like a loss
    }
  }
  zero.finish_gathers();
  if (!cell.save_to.empty()) {
    CheckpointSaver saver({.folder = cell.save_to, .keep = 0, .buffer_bytes = 1 << 24}, mesh);
    checkpoint::Manifest manifest;
    manifest.training.step = manifest.training.optimizer_steps = zero.optimizer().steps();
    saver.start(zero, manifest, {1, 2, 3});
    saver.finish();
    if (mesh.rank() == 0) require(saver.take_outcome()->failure.empty(), "not saved");
  }
  add_whole_buckets(out.parameters, zero, "", [&](std::size_t b) { return zero.optimizer().master(b); });
  for (std::size_t k = 0; k < zero.optimizer().state_names().size(); ++k)
    add_whole_buckets(out.parameters, zero, zero.optimizer().state_names()[k] + " of ",
                      [&](std::size_t b) { return zero.optimizer().state(b, k); });
  return out;
}

}  // namespace

std::string TrainingCell::str() const {
  return text(base.str(), " dp=", base.degrees.dp, " zero=", zero.stage, " replicate=", zero.replicate,
              " accumulation=", accumulation, " ", optimizer, " clip=", max_norm, " unit=", layers_per_unit,
              " persistence=", zero.persistence_threshold);
}

Outcome train_as_threads(const TrainingCell& cell) {
  Outcome first;
  const Grid grid = Grid::dense(cell.base.degrees);
  run_ranks(grid.size(), [&](World& world) {
    Mesh mesh(grid, world);
    Outcome outcome = train_rank(cell, mesh);
    if (mesh.rank() == 0) first = std::move(outcome);
  });
  return first;
}

Outcome train_plainly(const TrainingCell& cell) {
  Outcome out;
  run_ranks(1, [&](World& world) {
    Mesh mesh(Grid::dense({}), world);
    const InitScope scope(at::kCPU, at::kDouble);
    Decoder decoder(cell.base.model, {mesh, false});
    init(decoder, mesh, init_options(cell));
    const std::vector<Param> params = params_of(decoder);
    std::map<std::string, at::Tensor> m, v;
    for (int step = 0; step < cell.steps; ++step) {
      const Samples samples = samples_of(cell, step);
      const at::Tensor loss = loss_sum(decoder, samples, 0, cell.base.batch, step) / samples.targets_BT.ne(-100).sum();
      decoder.zero_grad();
      loss.backward();
      Named gradients;
      for (const Param& param : params) gradients.emplace_back(param.name, param.value.grad().clone());
      out.losses.push_back(loss.item<double>());
      const double norm = norm_of(gradients);
      if (step == 0) {
        out.gradients = gradients;
        out.gradient_norm = norm;
      } else {
        out.losses.push_back(norm);
      }
      const double clip = cell.max_norm > 0 ? std::min(1.0, cell.max_norm / (norm + 1e-6)) : 1.0,
                   lr = lr_of(cell, step);
      const at::NoGradGuard off;
      for (std::size_t i = 0; i < params.size(); ++i) {
        const std::string& name = params[i].name;
        at::Tensor w = params[i].value;
        at::Tensor g = gradients[i].second * clip;
        const double decay =
            name.find("norm") != std::string::npos || name.find("bias") != std::string::npos ? 0 : kDecay;
        if (cell.optimizer == "sgd") {
          g = g + decay * w;
          m[name] = step == 0 ? g.clone() : kMomentum * m[name] + g;
          w.sub_(lr * m[name]);
        } else {
          m[name] = (1 - kBeta1) * g + (step == 0 ? at::zeros_like(g) : kBeta1 * m[name]);
          v[name] = (1 - kBeta2) * g * g + (step == 0 ? at::zeros_like(g) : kBeta2 * v[name]);
          w.mul_(1 - lr * decay);
          w.sub_(lr * (m[name] / (1 - std::pow(kBeta1, step + 1))) /
                 ((v[name] / (1 - std::pow(kBeta2, step + 1))).sqrt() + kEps));
        }
      }
    }
    for (const Param& param : params) out.parameters.emplace_back(param.name, param.value.detach().clone());
    const auto states = [&](const std::string& name, const std::map<std::string, at::Tensor>& values) {
      for (const Param& param : params) out.parameters.emplace_back(name + " of " + param.name, values.at(param.name));
    };
    if (cell.optimizer == "sgd") {
      states("momentum_buffer", m);
    } else {
      states("exp_avg", m);
      states("exp_avg_sq", v);
    }
  });
  return out;
}

}  // namespace trireme::parity
