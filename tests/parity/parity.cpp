#include "tests/parity/parity.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include <ATen/ATen.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/model/decoder.hpp"
#include "trireme/nn/init.hpp"
#include "trireme/nn/init_scope.hpp"
#include "trireme/parallel/tensor/full_tensor.hpp"
#include "trireme/parallel/tensor/gradients.hpp"

namespace trireme::parity {
namespace {

constexpr std::uint64_t kSeed = 11;
constexpr double kLearningRate = 0.1;

struct Batch {
  at::Tensor ids_T, targets_T;
};

Batch batch_of(const Cell& cell, int step) {
  const std::int64_t tokens = cell.batch * cell.length;
  const at::Tensor all = at::remainder(at::arange(tokens + 1) * (31 + 2 * step) + 5 * step, cell.model.vocab_size);
  Batch batch{all.narrow(0, 0, tokens).clone(), all.narrow(0, 1, tokens).clone()};
  batch.targets_T[tokens - 1] = cell.model.vocab_size - 1;  // the last entry, next to the vocabulary padding
  if (cell.ignores) batch.targets_T.narrow(0, 1, cell.length - 2).fill_(-100);
  return {batch.ids_T.to(cell.device), batch.targets_T.to(cell.device)};
}

/// Gathers the tokens that the ranks hold between the layers.
at::Tensor whole_tokens(const at::Tensor& x_t, const Parallel& parallel) {
  const at::Tensor x = x_t.detach().contiguous();
  return parallel.sequence_parallel ? parallel.tp.all_gather(x).wait() : x.clone();
}

/// Concatenates microbatches along the rows.
void add_tokens(Named& out, const std::string& path, const at::Tensor& x) {
  for (auto& [name, tensor] : out)
    if (name == path) {
      tensor = at::cat({tensor, x});
      return;
    }
  out.emplace_back(path, x);
}

void add_whole(Named& out, const Param& param, const at::Tensor& local, Mesh& mesh) {
  const FullTensor whole = gather_full_tensor(local, param.spec, mesh);
  require(whole.disagreement == 0, "ranks that keep the same elements of ", param.name, " differ by ",
          whole.disagreement);
  out.emplace_back(param.name, whole.value.cpu());
}

double norm_of(const at::Tensor& t) { return t.to(at::kDouble).norm().item<double>(); }

double norm_of(const Named& tensors) {
  double squares = 0;
  for (const auto& [name, tensor] : tensors) squares += norm_of(tensor) * norm_of(tensor);
  return std::sqrt(squares);
}

/// Lines for tensors whose difference exceeds `bound` x max(norm, least).
std::vector<std::string> compare(const char* what, const Named& found, const Named& wanted, double bound,
                                 double least) {
  std::vector<std::string> lines;
  if (found.size() != wanted.size())
    lines.push_back(text(found.size(), " ", what, "s, the reference has ", wanted.size()));
  for (std::size_t i = 0; i < std::min(found.size(), wanted.size()); ++i) {
    const auto& [name, tensor] = found[i];
    if (name != wanted[i].first || tensor.sizes() != wanted[i].second.sizes()) {
      lines.push_back(text(what, " ", name, " ", tensor.sizes(), ": the reference has ", wanted[i].first, " ",
                           wanted[i].second.sizes()));
      continue;
    }
    const double difference = norm_of(tensor.to(at::kDouble) - wanted[i].second.to(at::kDouble));
    const double scale = std::max(norm_of(wanted[i].second), least);
    if (!(difference <= bound * scale))
      lines.push_back(text(what, " ", name, ": differs by ", difference / scale, " of ", scale, ", allowed ", bound));
  }
  return lines;
}

}  // namespace

std::string Cell::str() const {
  const char* again[] = {"none", "selective", "full"};
  return text(model.model_type, model.tie_word_embeddings ? " tied" : "", " heads=", model.num_attention_heads,
              " kv=", model.num_key_value_heads, " bias=", model.attention_bias, " dropout=", model.resid_pdrop, "/",
              model.attention_dropout, " window=", model.sliding_window, " tp=", degrees.tp, " sp=", sequence_parallel,
              " recompute=", again[static_cast<int>(recompute)], " ignores=", ignores, " microbatches=", microbatches,
              frozen.empty() ? "" : " frozen=", frozen);
}

Cell on_one_rank(Cell cell) {
  cell.degrees = {};
  cell.sequence_parallel = false;
  cell.recompute = config::Recompute::none;
  cell.microbatches = 1;
  return cell;
}

Outcome run(const Cell& cell, Mesh& mesh) {
  const InitScope scope(cell.device, cell.dtype);
  const Parallel parallel{mesh, cell.sequence_parallel};
  Decoder decoder(cell.model, parallel);
  decoder.set_recompute(cell.recompute);
  // Ten times the usual range: with small weights the attention hardly matters.
  init_parameters(decoder, mesh,
                  {.seed = kSeed, .scheme = InitScheme::gpt2, .range = 0.2, .layers = cell.model.num_hidden_layers});
  const std::vector<Param> params = params_of(decoder);
  {
    // Biases and norms are initialized to zeros and ones: random values detect more errors.
    const at::NoGradGuard off;
    for (const Param& param : params)
      if (param.spec.fill == Fill::zeros || param.spec.fill == Fill::ones || param.spec.fill == Fill::bias) {
        const at::Tensor whole = at::linspace(-0.3, 0.4, param.spec.shape[0], at::kDouble);
        for (const Piece& piece : ParamMesh(mesh).pieces(param.spec))
          box_view(param.value, box_of(piece.slices.local_slices))
              .add_(box_view(whole, box_of(piece.slices.global_slices)).to(param.value.options()));
      }
  }

  if (!cell.frozen.empty())
    for (const Param& param : params)
      if (param.name.find(cell.frozen) != std::string::npos) at::Tensor(param.value).set_requires_grad(false);

  Outcome out;
  for (int step = 0; step < cell.steps; ++step) {
    const Batch batch = batch_of(cell, step);
    const at::Tensor count = batch.targets_T.ne(-100).sum();  // of the whole batch, before it is split
    const std::int64_t samples = cell.batch / cell.microbatches, tokens = samples * cell.length;
    decoder.zero_grad();
    double total = 0;
    for (int m = 0; m < cell.microbatches; ++m) {
      ForwardContext context = whole_samples(samples, cell.length, step * cell.batch + m * samples, cell.device);
      context.seed = kSeed;
      context.step = step;
      if (step == 0)
        context.probe = [&](const std::string& path, const at::Tensor& x_t) {
          add_tokens(out.activations, path, whole_tokens(x_t, parallel).cpu());
        };
      const at::Tensor loss = decoder
                                  .loss(batch.ids_T.narrow(0, m * tokens, tokens),
                                        batch.targets_T.narrow(0, m * tokens, tokens), context, {.tile_tokens = 7})
                                  .loss /
                              count;
      loss.backward();
      total += loss.item<double>();
    }
    sum_partial_gradients(params, mesh);
    out.losses.push_back(total);
    if (step == 0) {
      for (const Param& param : params)
        if (param.value.grad().defined()) add_whole(out.gradients, param, param.value.grad(), mesh);
      out.gradient_norm = norm_of(out.gradients);
    }
    const at::NoGradGuard off;
    for (const Param& param : params)
      if (param.value.grad().defined()) at::Tensor(param.value).sub_(param.value.grad() * kLearningRate);
    mesh.end_step();
  }
  for (const Param& param : params) add_whole(out.parameters, param, param.value.detach(), mesh);
  return out;
}

Outcome run_as_threads(const Cell& cell) {
  Outcome first;
  const Grid grid = Grid::dense(cell.degrees);
  run_ranks(grid.size(), [&](World& world) {
    Mesh mesh(grid, world);
    Outcome outcome = run(cell, mesh);
    if (mesh.rank() == 0) first = std::move(outcome);
  });
  return first;
}

std::vector<std::string> differences(const Outcome& found, const Outcome& wanted, const Bounds& bounds) {
  const double least = bounds.least * wanted.gradient_norm;
  std::vector<std::string> lines =
      compare("activation after", found.activations, wanted.activations, bounds.gradient, 0);
  std::vector<std::string> gradients =
      compare("gradient of", found.gradients, wanted.gradients, bounds.gradient, least);
  // Backward reaches the last module first.
  lines.insert(lines.end(), gradients.rbegin(), gradients.rend());
  for (std::size_t i = 0; i < wanted.losses.size(); ++i) {
    const double other = i < found.losses.size() ? found.losses[i] : std::nan("");
    if (!(std::abs(other - wanted.losses[i]) <= bounds.loss * std::abs(wanted.losses[i])))
      lines.push_back(text("loss of step ", i, ": ", other, ", the reference has ", wanted.losses[i]));
  }
  if (!(std::abs(found.gradient_norm - wanted.gradient_norm) <= bounds.gradient * wanted.gradient_norm))
    lines.push_back(text("gradient norm ", found.gradient_norm, ", the reference has ", wanted.gradient_norm));
  const std::vector<std::string> after = compare("parameter", found.parameters, wanted.parameters, bounds.parameter, 0);
  lines.insert(lines.end(), after.begin(), after.end());
  return lines;
}

Outcome rolled(const Outcome& outcome) {
  const auto moved = [](Named tensors) {
    for (auto& [name, tensor] : tensors) tensor = tensor.flatten().roll(1).view(tensor.sizes());
    return tensors;
  };
  Outcome out = outcome;
  for (double& loss : out.losses) loss += 1e-9;
  out.gradient_norm += 1e-9;
  out.activations = moved(outcome.activations);
  out.gradients = moved(outcome.gradients);
  out.parameters = moved(outcome.parameters);
  return out;
}

const Outcome& References::of(const Cell& cell) {
  const Cell alone = on_one_rank(cell);
  const std::string key = text(alone.str(), " ", at::toString(alone.dtype), " ", alone.device);
  if (!known_.contains(key)) known_[key] = run_as_threads(alone);
  return known_.at(key);
}

std::vector<std::string> judged(const Outcome& found, const Outcome& reference, const Bounds& bounds) {
  std::vector<std::string> lines = differences(found, reference, bounds);
  const Outcome other = rolled(reference);
  // If found is within a bound of the reference, it must be beyond it for anything twice as far away.
  const Bounds twice{.loss = 2 * bounds.loss,
                     .gradient = 2 * bounds.gradient,
                     .least = bounds.least,
                     .parameter = 2 * bounds.parameter};
  const std::size_t wanted = differences(reference, other, twice).size(),
                    told = differences(found, other, bounds).size();
  if (wanted == 0 || told < wanted)
    lines.push_back(
        text("of ", wanted, " things that differ from the moved-on reference ", told, " were told from it"));
  return lines;
}

}  // namespace trireme::parity
