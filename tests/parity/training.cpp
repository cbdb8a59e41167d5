#include "tests/parity/training.hpp"

#include <algorithm>
#include <cmath>
#include <mutex>

#include <ATen/ATen.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/describe/pipeline.hpp"
#include "trireme/model/decoder.hpp"
#include "trireme/model/stage.hpp"
#include "trireme/nn/init.hpp"
#include "trireme/nn/init_scope.hpp"
#include "trireme/parallel/pipeline/executor.hpp"
#include "trireme/parallel/tensor/full_tensor.hpp"
#include "trireme/parallel/zero/collective_state_dict.hpp"
#include "trireme/schedule/generate.hpp"
#include "trireme/schedule/replay.hpp"
#include "trireme/train/save/checkpoint_saver.hpp"
#include "trireme/train/save/load_state.hpp"

namespace trireme::parity {
namespace {

constexpr std::uint64_t kSeed = 5;
constexpr double kBeta1 = 0.9, kBeta2 = 0.95, kEps = 1e-6, kDecay = 0.1, kMomentum = 0.8;

/// The mesh of a cell: with a view for experts if its model has some.
Mesh mesh_of(const TrainingCell& cell, const Grid& grid, World& world) {
  if (cell.base.model.num_local_experts == 0) return Mesh(grid, world);
  return Mesh(grid, world, {}, grid.size() == 1 ? expert_view(grid, 1) : expert_view(grid, cell.ep, cell.expert_tp));
}

double lr_of(const TrainingCell& cell, int step) { return (cell.optimizer == "sgd" ? 0.05 : 0.01) / (1 + 0.3 * step); }

/// Samples that each ignore a different number of targets, one of them all: ranks have unequal token counts.
struct Samples {
  at::Tensor ids_BT, targets_BT;
  at::Tensor documents_BT = {}, positions_BT = {};  // of documents that are apart
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
  if (!cell.documents) return out;
  // Borders at different places in every sample, the last sample without one.
  out.documents_BT = at::zeros_like(out.ids_BT);
  out.positions_BT = at::arange(c.length).repeat({c.batch, 1});
  for (std::int64_t b = 0; b + 1 < c.batch; ++b)
    for (const std::int64_t border : {1 + (b + step) % (c.length - 1), (3 + 5 * b) % c.length}) {
      if (border == 0) continue;
      out.documents_BT[b].narrow(0, border, c.length - border).add_(1);
      out.targets_BT[b][border - 1] = -100;
    }
  for (std::int64_t b = 0; b < c.batch; ++b)
    for (std::int64_t i = 1, begin = 0; i < c.length; ++i) {
      if (out.documents_BT[b][i].item<std::int64_t>() != out.documents_BT[b][i - 1].item<std::int64_t>()) begin = i;
      out.positions_BT[b][i] = i - begin;
    }
  return out;
}

/// Of whole samples: rows [first, first + count) of a step.
ForwardContext context_of(const Samples& samples, std::int64_t first, std::int64_t count, int step) {
  ForwardContext context = whole_samples(count, samples.ids_BT.size(1), first);
  context.seed = kSeed;
  context.step = step;
  context.auxiliary_factor = 1.0 / static_cast<double>(samples.ids_BT.numel());
  if (samples.documents_BT.defined()) {
    context.documents_bS = samples.documents_BT.narrow(0, first, count);
    context.document_positions_T = samples.positions_BT.narrow(0, first, count).reshape(-1);
  }
  return context;
}

InitOptions init_options(const TrainingCell& cell) {
  return {.seed = kSeed, .scheme = InitScheme::gpt2, .range = 0.2, .layers = cell.base.model.num_hidden_layers};
}

/// A part of the model for the tokens at these positions of rows [first, first + count) of a step.
ChunkOutput forward(Decoder& part, const Samples& samples, std::int64_t first, std::int64_t count,
                    const std::vector<Range>& tokens, int step, const std::vector<Tensors>& inputs,
                    bool gradients_in_backward) {
  const auto own = [&](const at::Tensor& x_BT) {
    return select_tokens(x_BT.narrow(0, first, count), tokens).flatten();
  };
  const at::Tensor hidden = part.hidden(inputs.empty() ? own(samples.ids_BT) : inputs[0][0],
                                        part_of_samples(context_of(samples, first, count, step), tokens));
  if (!part.part().has_head) return std::vector<Tensors>{{hidden}};
  return part
      .loss_of_hidden(hidden, own(samples.targets_BT),
                      {.tile_tokens = 7, .gradients_in_backward = gradients_in_backward})
      .loss;
}

/// The summed loss of rows [first, first + count) of a step.
at::Tensor loss_sum(Decoder& decoder, const Samples& samples, std::int64_t first, std::int64_t count, int step) {
  return decoder
      .loss(samples.ids_BT.narrow(0, first, count).reshape(-1), samples.targets_BT.narrow(0, first, count).reshape(-1),
            context_of(samples, first, count, step), {.tile_tokens = 7})
      .loss;
}

/// What pads a rank's tensor stays zero in weights, gradients and states (Note [Vocabulary rows]).
void require_zero_padding(const std::string& what, const at::Tensor& local, const ParamSpec& spec,
                          const ParamMesh& mesh) {
  const at::Tensor padding = local.clone();
  for (const Piece& piece : mesh.pieces(spec)) box_view(padding, box_of(piece.slices.local_slices)).zero_();
  require(padding.eq(0).all().item<bool>(), what, ": its padding is not zero");
}

/// The full tensors of this pipeline rank's parameters. Tied copies have a name of their own.
void add_whole_buckets(Named& out, const Zero& zero, const std::string& prefix, const ShardOfBucket& own_part) {
  const ParamMesh& mesh = zero.parts()[0]->partition.mesh();
  for_each_full_shard_of_stage(
      zero, own_part, [&](const Param& param, const at::Tensor& local, const at::Tensor& full) {
        require_zero_padding(prefix + param.name, local, param.spec, mesh);
        out.emplace_back(text(param.spec.is_tied_copy ? "copy of " : "", prefix, param.name), full);
      });
}

/// What stands before the names: "", "exp_avg of ".
std::vector<std::string> prefixes_of(const Named& named) {
  std::vector<std::string> prefixes{""};
  for (const auto& [name, tensor] : named)
    if (const std::size_t end = name.find(" of "); end != std::string::npos && !name.starts_with("copy"))
      if (const std::string prefix = name.substr(0, end + 4); std::ranges::find(prefixes, prefix) == prefixes.end())
        prefixes.push_back(prefix);
  return prefixes;
}

/// The tensors of all pipeline ranks in the order of `names`; copies must be equal.
Named joined(const std::vector<Named>& of_ranks, const std::vector<std::string>& names) {
  std::map<std::string, at::Tensor> all;
  for (const Named& named : of_ranks)
    for (const auto& [name, tensor] : named)
      require(all.emplace(name, tensor).second, name, " is on two pipeline ranks");
  Named out;
  if (all.empty()) return out;  // no step was made
  for (const auto& name : names) {
    require(all.contains(name), name, " is on no pipeline rank");
    out.emplace_back(name, all.at(name));
    if (const auto copy = all.find("copy of " + name); copy != all.end())
      require(copy->second.equal(all.at(name)), name, ": the copies of a tied parameter differ");
  }
  return out;
}

double norm_of(const Named& tensors) {
  double squares = 0;
  for (const auto& [name, tensor] : tensors) squares += tensor.square().sum().item<double>();
  return std::sqrt(squares);
}

Outcome train_rank(const TrainingCell& cell, Mesh& mesh) {
  const Cell& c = cell.base;
  const InitScope scope(at::kCPU, at::kDouble);
  const schedule::Schedule schedule =
      schedule::make_schedule(cell.schedule, c.degrees.pp, cell.accumulation, cell.virtual_stages);
  ParallelismConfig parallelism;
  parallelism.pp = c.degrees.pp;
  parallelism.pp_schedule = cell.schedule;
  parallelism.virtual_stages = cell.virtual_stages;
  ZeroOptions options = cell.zero;
  options.accumulate = options.reduce = at::kDouble;
  const bool in_backward =
      schedule::microbatches_in_flight(schedule.programs[static_cast<std::size_t>(mesh.coord(Axis::pp))]) > 1;
  const ContextSplit context = context_split(cell.context_method, c.degrees.cp,
                                             std::max<std::int64_t>(1, c.model.num_key_value_heads / c.degrees.tp));
  const std::vector<Range> tokens = context.tokens(c.length, mesh.coord(Axis::cp));
  std::vector<std::unique_ptr<Decoder>> decoders;
  std::vector<ModelChunk> chunks;
  for (const DecoderPart& part : decoder_parts(c.model, pipeline_chunks(c.model, parallelism), mesh)) {
    decoders.push_back(std::make_unique<Decoder>(c.model, Parallel{mesh, c.sequence_parallel, context}, part));
    decoders.back()->set_recompute(c.recompute);
    chunks.push_back(
        {params_of(*decoders.back()),
         decoders.back()->unit_plan({.layers_per_unit = cell.layers_per_unit, .head_weight_in_backward = in_backward}),
         part.chunk});
  }
  std::vector<UnitPlan> units;
  for (const ModelChunk& chunk : chunks) units.push_back(chunk.units);
  Zero zero(std::move(chunks), mesh, options,
            {.optimizer = {.kind = parse_optimizer(cell.optimizer),
                           .beta1 = kBeta1,
                           .beta2 = kBeta2,
                           .eps = kEps,
                           .weight_decay = kDecay,
                           .momentum = kMomentum},
             .master = at::kDouble,
             .states = at::kDouble},
            random_values(mesh, init_options(cell)));
  for (std::size_t i = 0; i < decoders.size(); ++i) decoders[i]->use_units(&zero.chunk(i), units[i]);
  Executor executor(schedule, zero, mesh);
  Executor validation(schedule::forward_only(schedule, cell.accumulation), mesh, at::kCPU);
  Group &dp = mesh.group(Axis::dp), &token_group = mesh.token_group();
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
      count +=
          select_tokens(samples.targets_BT.narrow(0, first_row(m), each), tokens).ne(-100).sum().item<std::int64_t>();
    const at::Tensor all = token_group.all_reduce(at::tensor({count})).wait().to(at::kDouble);
    const StepWork work{.step = step,
                        .forward =
                            [&](int chunk, int m, const std::vector<Tensors>& inputs) {
                              Decoder& decoder = *decoders[static_cast<std::size_t>(
                                  std::ranges::find(executor.chunks(), chunk) - executor.chunks().begin())];
                              return forward(decoder, samples, first_row(m), each, tokens, step, inputs, in_backward);
                            },
                        .loss_gradient = [&] { return 1 / all[0]; },
                        .shape_key = {}};
    const StepOutcome outcome = executor.run(work);
    require(
        outcome.peak_live == schedule::replay(schedule).ranks[static_cast<std::size_t>(mesh.coord(Axis::pp))].peak_live,
        "more live microbatches than in the schedule");
    zero.finish_gradients();
    mesh.end_step();
    const double norm = zero.update({.lr = lr_of(cell, step), .max_norm = cell.max_norm}).settle();
    if (step == 1) {  // inspecting the model between two steps changes nothing
      const at::NoGradGuard no_grad;
      validation.run(work);
    }
    const at::Tensor of_stage = token_group.all_reduce(outcome.loss_sum.view({1})).wait();
    out.losses.push_back((mesh.group(Axis::pp).all_reduce(of_stage).wait()[0] / all[0]).item<double>());
    if (step == cell.first_step) {
      add_whole_buckets(out.gradients, zero, "", gradient_shard);
      out.gradient_norm = norm;
    } else {
      out.losses.push_back(norm);  // compared like a loss
    }
  }
  zero.finish_gathers();
  if (!cell.save_to.empty()) {
    CheckpointSaver saver({.folder = cell.save_to, .keep = 0, .buffer_bytes = 1 << 24}, mesh);
    checkpoint::Manifest manifest;
    manifest.training.step = manifest.training.optimizer_steps = zero.parts()[0]->optimizer.steps();
    saver.start(zero, manifest, {{checkpoint::kRandom, {1, 2, 3}}});
    saver.finish();
    if (mesh.rank() == 0) require(saver.take_outcome()->failure.empty(), "not saved");
  }
  add_whole_buckets(out.parameters, zero, "",
                    [](const ZeroPart& part, std::size_t b) { return part.optimizer.master(b); });
  const std::vector<std::string> states = zero.parts()[0]->optimizer.state_names();
  for (std::size_t k = 0; k < states.size(); ++k)
    add_whole_buckets(out.parameters, zero, states[k] + " of ",
                      [k](const ZeroPart& part, std::size_t b) { return part.optimizer.state(b, k); });
  return out;
}

}  // namespace

std::string TrainingCell::str() const {
  return text(base.str(), " pp=", base.degrees.pp, " ", schedule, virtual_stages > 1 ? text("x", virtual_stages) : "",
              " cp=", base.degrees.cp, " method ", static_cast<int>(context_method), documents ? " documents" : "",
              base.model.num_local_experts > 0 ? text(" ep=", ep, " expert_tp=", expert_tp) : "",
              " dp=", base.degrees.dp, " zero=", zero.stage, " replicate=", zero.replicate,
              " accumulation=", accumulation, " ", optimizer, " clip=", max_norm, " unit=", layers_per_unit,
              " persistence=", zero.persistence_threshold);
}

Outcome train_as_threads(const TrainingCell& cell) {
  const Grid grid = Grid::dense(cell.base.degrees);
  std::vector<Outcome> of_stages(static_cast<std::size_t>(cell.base.degrees.pp));
  run_ranks(grid.size(),
            [&](World& world) {
              Mesh mesh = mesh_of(cell, grid, world);
              Outcome outcome = train_rank(cell, mesh);
              if (mesh.rank() == mesh.group(Axis::pp).world_ranks()[static_cast<std::size_t>(mesh.coord(Axis::pp))] &&
                  mesh.group(Axis::pp).world_ranks()[0] == 0)
                of_stages[static_cast<std::size_t>(mesh.coord(Axis::pp))] = std::move(outcome);
            },
            {.deterministic = cell.deterministic});
  Outcome all = of_stages[0];
  std::vector<Named> gradients, parameters;
  std::vector<std::string> gradient_names, parameter_names;
  run_ranks(1, [&](World& world) {
    Mesh mesh = mesh_of(cell, Grid::dense({}), world);
    const InitScope scope(at::kMeta, at::kDouble);
    for (const Param& param : params_of(Decoder(cell.base.model, {mesh, false}))) gradient_names.push_back(param.name);
  });
  for (const std::string& prefix : prefixes_of(all.parameters))
    for (const std::string& name : gradient_names) parameter_names.push_back(prefix + name);
  for (Outcome& stage : of_stages) {
    gradients.push_back(std::move(stage.gradients));
    parameters.push_back(std::move(stage.parameters));
  }
  all.gradients = joined(gradients, gradient_names);
  all.parameters = joined(parameters, parameter_names);
  return all;
}

Outcome train_plainly(const TrainingCell& cell) {
  Outcome out;
  run_ranks(1, [&](World& world) {
    Mesh mesh = mesh_of(cell, Grid::dense({}), world);
    const InitScope scope(at::kCPU, at::kDouble);
    Decoder decoder(cell.base.model, {mesh, false});
    init_parameters(decoder, mesh, init_options(cell));
    const std::vector<Param> params = params_of(decoder);
    const auto without_padding = [&](const Param& param, const at::Tensor& local) {
      return gather_full_tensor(local, param.spec, mesh).value;
    };
    std::map<std::string, at::Tensor> m, v;
    for (int step = 0; step < cell.steps; ++step) {
      const Samples samples = samples_of(cell, step);
      const at::Tensor count = samples.targets_BT.ne(-100).sum().to(at::kDouble);
      const at::Tensor loss = loss_sum(decoder, samples, 0, cell.base.batch, step) / count;
      decoder.zero_grad();
      loss.backward();
      Named gradients;
      for (const Param& param : params) gradients.emplace_back(param.name, param.value.grad().clone());
      out.losses.push_back(loss.item<double>());
      const double norm = norm_of(gradients);
      if (step == 0) {
        for (std::size_t i = 0; i < params.size(); ++i)
          out.gradients.emplace_back(params[i].name, without_padding(params[i], gradients[i].second));
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
    for (const Param& param : params)
      out.parameters.emplace_back(param.name, without_padding(param, param.value.detach()));
    const auto states = [&](const std::string& name, const std::map<std::string, at::Tensor>& values) {
      for (const Param& param : params)
        out.parameters.emplace_back(name + " of " + param.name, without_padding(param, values.at(param.name)));
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
