#include "trireme/verify/verify_reference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ATen.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/config/schema/dense_grid.hpp"
#include "trireme/model/decoder.hpp"
#include "trireme/nn/init_scope.hpp"
#include "trireme/parallel/tensor/full_tensor.hpp"
#include "trireme/train/setup/component_options.hpp"
#include "trireme/train/setup/dtypes.hpp"
#include "trireme/train/setup/initial_values.hpp"
#include "trireme/train/step/batches.hpp"

namespace trireme {

at::Tensor sketch_of(const at::Tensor& x_tD) {
  const at::Tensor x = x_tD.detach().to(at::kDouble);
  const at::Tensor feature = at::arange(1, x.size(1) + 1, x.options()).unsqueeze(1);
  const at::Tensor turn = at::arange(1, kSketchColumns + 1, x.options()).sqrt() * 12.9898;
  const at::Tensor signs = (feature * feature * turn).cos().sign();
  return at::cat({x.matmul(signs), x.norm(2, 1, /*keepdim=*/true)}, 1);
}

void ReferenceStep::add_sketch(const std::string& module, const at::Tensor& rows_t, const at::Tensor& x_tD,
                               std::int64_t tokens) {
  const at::Tensor sketch = sketch_of(x_tD);
  at::Tensor& all = sketches[module];
  if (!all.defined()) all = at::zeros({tokens, sketch.size(1)}, sketch.options());
  all.index_copy_(0, rows_t, sketch);
}

void ReferenceStep::set_gradient_norm() {
  double squares = 0;
  for (const auto& [name, gradient] : gradients) squares += std::pow(gradient.norm().item<double>(), 2);
  gradient_norm = std::sqrt(squares);
}

std::int64_t tokens_of_step(const Config& config, std::int64_t seq_len) {
  return config.training.global_batch_size * seq_len;
}

Config on_one_rank(Config config) {
  config.training.micro_batch_size *= config.parallelism.dp;
  config.parallelism = ParallelismConfig{};
  config.parallelism.dp = config.parallelism.expert_tp = 1;
  config.parallelism.zero = 0;
  config.parallelism.sequence_parallel = false;
  return config;
}

Mesh mesh_for(const Config& config, World& world) {
  return Mesh(config::dense_grid(config.parallelism), world, {}, config::expert_grid(config.model, config.parallelism));
}

Reference names_of_reference(const Config& config, std::string what) {
  Reference out{.what = std::move(what), .steps = {}, .parameters = {}, .modules = {"embedding"}};
  const Config alone = on_one_rank(config);
  run_ranks(1, [&](World& world) {
    Mesh mesh = mesh_for(alone, world);
    const InitScope scope(at::kMeta, at::kDouble);
    const Decoder decoder(alone.model, Parallel(mesh, false));
    freeze_parameters(params_of(decoder), config);
    for (const Param& param : params_of(decoder))
      if (param.value.requires_grad()) out.parameters.push_back(param.name);
  });
  for (std::int64_t i = 0; i < config.model.num_hidden_layers; ++i) out.modules.push_back(text("layers.", i));
  out.modules.emplace_back("norm");
  return out;
}

namespace {

double dtype_epsilon(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble: return std::numeric_limits<double>::epsilon();
    case at::kFloat: return std::numeric_limits<float>::epsilon();
    case at::kHalf: return std::numeric_limits<at::Half>::epsilon();
    default: return std::numeric_limits<at::BFloat16>::epsilon();
  }
}

void move_by_one_unit(const at::Tensor& x) {
  const at::NoGradGuard no_grad;
  const double unit = dtype_epsilon(x.scalar_type());
  const at::Tensor index = at::arange(x.numel(), at::TensorOptions(at::kLong).device(x.device())).view(x.sizes());
  at::Tensor(x).copy_(x.to(at::kDouble) * (index.remainder(3).eq(1).to(at::kDouble) * (2 * unit) + (1 - unit)));
}

}  // namespace

Reference reference_of_one_rank(const Config& config, at::Device device, int steps, bool moved) {
  Reference out = names_of_reference(config, "one rank");
  run_ranks(1, [&](World& world) {
    Mesh mesh = mesh_for(config, world);
    const InitScope scope(device, scalar_type(config.precision.param));
    Decoder decoder(config.model, Parallel(mesh, false, config::context_split_of(config)));
    const std::vector<Param> params = params_of(decoder);
    freeze_parameters(params, config);
    fill_params(params, InitialValues(config, params, mesh).values());
    if (moved)
      for (const Param& param : params) move_by_one_unit(param.value);
    Batches batches(config, mesh, device);
    const CrossEntropyOptions options = loss_options(config, device);
    for (int step = 1; step <= steps; ++step) {
      ReferenceStep& now = out.steps.emplace_back();
      const std::int64_t tokens = tokens_of_step(config, batches.data().sampler().seq_len(step));
      const std::vector<Microbatch> microbatches = batches.take(step);
      std::int64_t valid = 0;
      for (const Microbatch& microbatch : microbatches) valid += microbatch.valid;
      const double count = std::max(1.0, static_cast<double>(valid));
      decoder.zero_grad();
      for (const Microbatch& microbatch : microbatches) {
        ForwardContext context = microbatch.context;
        context.auxiliary_factor = 1 / static_cast<double>(tokens);
        context.probe = [&](const std::string& path, const at::Tensor& x) {
          now.add_sketch(path, context.rows_T(), x, tokens);
        };
        const at::Tensor loss = decoder.loss(microbatch.ids_T, microbatch.targets_T, context, options).loss / count;
        loss.backward();
        now.loss += loss.item<double>();
      }
      for (const Param& param : params) {
        if (!param.value.requires_grad()) continue;
        const at::Tensor gradient =
            param.value.grad().defined() ? param.value.grad().clone() : at::zeros_like(param.value).detach();
        now.gradients[param.name] = gather_full_tensor(gradient, param.spec, mesh).value.cpu().to(at::kDouble);
      }
      now.set_gradient_norm();
    }
  });
  return out;
}

void measure_noise(Reference& reference, const Config& alone, at::Device device) {
  const auto steps = static_cast<int>(reference.steps.size());
  const Reference exact = reference_of_one_rank(alone, device, steps),
                  moved = reference_of_one_rank(alone, device, steps, /*moved=*/true);
  for (std::size_t i = 0; i < reference.steps.size(); ++i)
    for (const auto& [name, gradient] : exact.steps[i].gradients)
      reference.steps[i].noise[name] = (gradient - moved.steps[i].gradients.at(name)).norm().item<double>();
}

}  // namespace trireme
