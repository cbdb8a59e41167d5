// Runs a model folder on a layout, with ranks as threads, in f64, and writes the results for comparison with
// transformers.
//   trireme_parity_peer FOLDER:TP:SP:EP...      SP: 1 with sequence parallelism, else 0; EP: also the degree of dp
// FOLDER: as saved by transformers, and batch.txt: number of samples, their length, then all ids, then all targets
// (-100: ignored).
// Writes FOLDER/out_TP_SP_EP/: loss.txt, logits.f64, and grad_NAME.f64 for each weight by its Hugging Face name, as raw
// numbers.
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>

#include <ATen/ATen.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/comm/mesh.hpp"
#include "trireme/config/read/derive.hpp"
#include "trireme/config/read/parse.hpp"
#include "trireme/model/hugging_face.hpp"
#include "trireme/nn/init_scope.hpp"
#include "trireme/parallel/tensor/full_tensor.hpp"
#include "trireme/parallel/tensor/gradients.hpp"

namespace {

using namespace trireme;
namespace fs = std::filesystem;

ModelConfig model_of(const fs::path& folder) {
  config::LoadedConfig loaded = config::load_config_text("peer", text("[model]\nhf = \"", folder.string(), "\"\n"));
  loaded.config.model.router_aux_loss_type = "hf";
  config::derive(loaded);
  config::throw_if_any(loaded.violations);
  return loaded.config.model;
}

struct Batch {
  std::int64_t samples = 0, length = 0;
  at::Tensor ids_T, targets_T;
};

Batch read_batch(const fs::path& file) {
  std::ifstream in(file);
  Batch batch;
  in >> batch.samples >> batch.length;
  for (at::Tensor* numbers : {&batch.ids_T, &batch.targets_T}) {
    std::vector<std::int64_t> values(static_cast<std::size_t>(batch.samples * batch.length));
    for (std::int64_t& value : values) in >> value;
    *numbers = at::tensor(values, at::kLong);
  }
  require<DataError>(bool(in), file.string(), " is too short");
  return batch;
}

void write(const fs::path& file, const at::Tensor& tensor) {
  const at::Tensor numbers = tensor.detach().to(at::kDouble).contiguous();
  std::ofstream(file, std::ios::binary)
      .write(static_cast<const char*>(numbers.data_ptr()), static_cast<std::streamsize>(numbers.nbytes()));
}

void run(const fs::path& folder, int tp, bool sequence_parallel, int ep) {
  const ModelConfig model = model_of(folder);
  const Batch batch = read_batch(folder / "batch.txt");
  const fs::path out = folder / text("out_", tp, "_", sequence_parallel ? 1 : 0, "_", ep);
  fs::create_directories(out);
  run_ranks(tp * ep, [&](World& world) {
    const Grid grid = Grid::dense({.dp = ep, .tp = tp});
    Mesh mesh(grid, world, {}, expert_view(grid, ep));
    const InitScope f64(at::kCPU, at::kDouble);
    Decoder decoder(model, {mesh, sequence_parallel});
    load_hugging_face(decoder, folder, mesh);
    Group& dp = mesh.group(Axis::dp);
    const std::int64_t samples = batch.samples / ep, tokens = samples * batch.length;
    const auto own = [&](const at::Tensor& x_T) { return x_T.narrow(0, dp.rank() * tokens, tokens); };
    ForwardContext context = whole_samples(samples, batch.length, dp.rank() * samples);
    const at::Tensor count = batch.targets_T.ne(-100).sum().to(at::kDouble);
    at::Tensor auxiliary = at::zeros({1}, at::kDouble);
    // The auxiliary loss is a mean over the tokens with and without a target.
    const double all_tokens = static_cast<double>(batch.ids_T.numel());
    context.auxiliary_factor = 1 / all_tokens;
    context.auxiliary_loss = [&](const at::Tensor& sum) { auxiliary += sum; };
    const at::Tensor logits = dp.all_gather(decoder.logits(own(batch.ids_T), context).detach().contiguous()).wait();
    const at::Tensor loss = decoder.loss(own(batch.ids_T), own(batch.targets_T), context).loss / count;
    loss.backward();
    const std::vector<Param> params = params_of(decoder);
    sum_partial_gradients(params, mesh);
    std::map<std::string, at::Tensor> grads;
    for (const Param& param : params) {
      const at::Tensor summed =
          ParamMesh(mesh).sum_group(param.spec).all_reduce(param.value.grad().contiguous()).wait();
      const FullTensor whole = gather_full_tensor(summed, param.spec, mesh);
      require(whole.disagreement == 0, param.name, ": ranks disagree by ", whole.disagreement);
      grads[param.name] = whole.value;
    }
    const double total = dp.all_reduce(loss.detach().view({1})).wait().item<double>();
    const double auxiliary_loss = mesh.world_group().all_reduce(auxiliary).wait().item<double>() / all_tokens;
    if (mesh.rank() != 0) return;
    std::ofstream(out / "loss.txt") << std::setprecision(17) << total + auxiliary_loss << "\n";
    write(out / "logits.f64", logits);
    for (const WeightName& name : weight_names(model))
      write(out / ("grad_" + name.theirs + ".f64"), their_tensor(name, grads.at(name.ours)));
  });
}

}  // namespace

int main(int argc, char** argv) {
  try {
    for (int i = 1; i < argc; ++i) {
      std::istringstream words(argv[i]);
      std::string folder, tp, sequence_parallel, ep;
      for (std::string* word : {&folder, &tp, &sequence_parallel, &ep}) std::getline(words, *word, ':');
      run(folder, std::stoi(tp), sequence_parallel == "1", std::stoi(ep));
    }
  } catch (const std::exception& error) {
    std::cerr << "trireme_parity_peer: error: " << error.what() << "\n";
    return 1;
  }
}
