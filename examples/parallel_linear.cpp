// One Linear layer in three tensor-parallel versions, on any number of ranks: the sharded computations of nanotron's
// documentation, and the numbers of Megatron's.
//   trireme launch -n 2 -- ./trireme_example_parallel_linear
#include <cstdio>
#include <iostream>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "trireme/comm/differentiable.hpp"
#include "trireme/nn/init.hpp"
#include "trireme/parallel/tensor/full_tensor.hpp"
#include "trireme/parallel/tensor/gradients.hpp"
#include "trireme/parallel/tensor/linear.hpp"
#include "trireme/runtime/rank/parallel_context.hpp"
#include "trireme/runtime/rank/rank_main.hpp"
#include "trireme/testing/gradcheck.hpp"

using namespace trireme;

// B batch, H features, h = H / tp
constexpr std::int64_t B = 4, H = 8;

int main(int argc, char** argv) {
  const RankMain how{.words = {argv, argv + argc}, .variables = process_variables(), .quiet = true};
  return rank_main(how, [&](const Environment& env) {
    const ParallelContext context({.tensor_parallel_size = env.world_size}, env, how.variables, {.backend = "gloo"});
    Mesh& mesh = context.mesh();
    Group& tp = context.tp_pg();
    const at::Tensor x_BH = normal_tensor({B, H}, 1, "x").to(at::kFloat);

    // Every element of a weight is a function of (seed, name, index): the full weight is the same for any number of
    // ranks.
    const auto initialised = [&](auto layer) {
      init_parameters(*layer, mesh, {.seed = 42, .scheme = InitScheme::plain});
      return layer;
    };

    // Version 1: outputs sharded, W_hH on each rank; the outputs are gathered.
    const auto column =
        initialised(std::make_shared<ColumnLinear>(H, H, Parallel(mesh), ColumnOptions{.gather_output = true}));
    const at::Tensor y1_BH = column->forward(x_BH);

    // Version 2: inputs sharded, W_Hh on each rank; the partial outputs are summed.
    const auto row =
        initialised(std::make_shared<RowLinear>(H, H, Parallel(mesh), RowOptions{.input_is_parallel = false}));
    const at::Tensor y2_BH = row->forward(x_BH);

    // Version 3: the weight replicated, the batch sharded; the inputs are gathered and every rank computes everything.
    const at::Tensor whole_HH = gather_full_tensor(column->weight_fD.detach(), *column->spec("weight"), mesh).value;
    const at::Tensor x_bH = x_BH.chunk(tp.size(), 0)[static_cast<std::size_t>(tp.rank())].contiguous();
    const at::Tensor y3_BH = at::mm(differentiable::gather_replicated(x_bH, 0, tp), whole_HH.t());

    // Gradients: each rank has those of its shard; partial gradients are summed over the ranks.
    y1_BH.square().sum().backward();
    sum_partial_gradients(params_of(*column), mesh);

    // The metadata of a parameter: its full shape and how it is sharded.
    const ParamSpec& spec = *row->spec("weight");
    const ShardedInfo info = sharded_info(spec.placement, spec.shape, mesh.grid(), mesh.rank());
    std::cout << text("rank ", tp.rank(), ": W2 is ", row->weight_Df.sizes(), " of ", tuple_text(info.unsharded_shape),
                      ", slices ", str(info.local_global_slices_pairs), "\n")
              << std::flush;
    tp.barrier().wait();

    // The same layer with the numbers of the well-known example of Megatron's ColumnParallelLinear: two outputs, so on
    // one rank or two. The all-gather concatenates the columns; torch.manual_seed(0) gives the same values in every
    // language.
    at::Tensor product;
    if (tp.size() <= 2) {
      at::Generator generator = at::detail::createCPUGenerator(0);
      const at::Tensor inputs = at::randn({2, 4}, generator), weights = at::randn({4, 2}, generator);
      ColumnLinear layer(4, 2, mesh, {.gather_output = true});
      const at::NoGradGuard no_grad;
      layer.weight_fD.copy_(weights.t().chunk(tp.size(), 0)[static_cast<std::size_t>(tp.rank())]);
      product = layer.forward(inputs);
    }
    if (tp.rank() == 0) {
      for (std::int64_t i = 0; product.defined() && i < 2; ++i)
        std::printf("%.4f %.4f\n", product[i][0].item<double>(), product[i][1].item<double>());
      std::fflush(stdout);
      std::cout << "the three versions agree: "
                << (at::allclose(y1_BH, y2_BH, 1e-4, 1e-5) && at::allclose(y1_BH, y3_BH, 1e-4, 1e-5) ? "yes" : "no")
                << "\n";
    }
  });
}
