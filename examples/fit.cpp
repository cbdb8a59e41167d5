// One call trains a model on all devices: sharded (FSDP) or as a pipeline, with the same result as on one.
//   ./fit
#include <iostream>

#include <torch/nn.h>
#include <torch/optim/adam.h>
#include <trireme/trireme.hpp>

int main() {
  using namespace trireme;
  at::manual_seed(0);
  const at::Tensor x = at::randn({600, 8});
  const at::Tensor y = x.narrow(1, 0, 3).argmax(1);
  const auto train = tensor_dataset(x.narrow(0, 0, 500), y.narrow(0, 0, 500));
  const auto validation = tensor_dataset(x.narrow(0, 500, 100), y.narrow(0, 500, 100));
  const auto loss = [](const at::Tensor& logits, const at::Tensor& target) {
    return at::cross_entropy_loss(logits, target);
  };
  const OptimizerMaker optimizer = [](std::vector<at::Tensor> parameters) {
    return std::make_unique<torch::optim::Adam>(std::move(parameters), torch::optim::AdamOptions(5e-3));
  };

  const std::vector<at::Device> two(2, at::Device(at::kCPU));  // without it: all GPUs, or the CPU
  for (const auto& parallel :
       {std::optional<Parallelism>(),
        std::optional(Parallelism{
            .p_type = ParallelismType::FSDP, .devices = two, .config_fsdp = {.wrap_policy = wrap_by_size(100)}}),
        std::optional(Parallelism{.p_type = ParallelismType::PIPELINE, .devices = two})}) {
    at::manual_seed(1);
    torch::nn::Sequential net(torch::nn::Linear(8, 32), torch::nn::ReLU(), torch::nn::Linear(32, 32), torch::nn::ReLU(),
                              torch::nn::Linear(32, 3));
    // The batch size is per device with FSDP.
    const bool shards = parallel && parallel->p_type == ParallelismType::FSDP;
    const FitResult result = fit(net, train, validation, loss, optimizer,
                                 {.parallel = parallel, .epochs = 5, .batch_size = shards ? 10 : 20});
    std::cout << (parallel ? str(*parallel) : "one device") << ": validation loss " << result.validation_loss
              << ", accuracy " << result.validation_accuracy << std::endl;
  }
}
