// Runs a model folder on a layout, with ranks as threads, in f64, and writes the results for comparison with
// transformers.
//   trireme_parity_peer FOLDER:TP:SP...      SP: 1 with sequence parallelism, else 0
// FOLDER: as saved by transformers, and batch.txt: number of samples, their length, then all ids, then all targets
// (-100: ignored).
// Writes FOLDER/out_TP_SP/: loss.txt, logits.f64, and grad_NAME.f64 for each weight by its Hugging Face name, as raw
// numbers.
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>

#include <ATen/ATen.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/mesh.hpp"
#include "trireme/comm/thread_world.hpp"
#include "trireme/config/read/parse.hpp"
#include "trireme/config/schema/derive.hpp"
#include "trireme/model/hugging_face.hpp"
#include "trireme/nn/full_tensor.hpp"
#include "trireme/nn/gradients.hpp"
#include "trireme/nn/init_scope.hpp"

namespace {

using namespace trireme;
namespace fs = std::filesystem;

ModelConfig model_of(const fs::path& folder) {
  config::LoadedConfig loaded = config::load_config_text("peer", text("[model]\nhf = \"", folder.string(), "\"\n"));
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

void run(const fs::path& folder, int ranks, bool sequence_parallel) {
  const ModelConfig model = model_of(folder);
  const Batch batch = read_batch(folder / "batch.txt");
  const fs::path out = folder / text("out_", ranks, "_", sequence_parallel ? 1 : 0);
  fs::create_directories(out);
  run_ranks(ranks, [&](World& world) {
    Mesh mesh(Grid::dense({.tp = ranks}), world);
    const InitScope f64(at::kCPU, at::kDouble);
    Decoder decoder(model, {mesh, sequence_parallel});
    load_hugging_face(decoder, folder, mesh);
    const ForwardContext context = whole_samples(batch.samples, batch.length);
    const at::Tensor logits = decoder.logits(batch.ids_T, context);
    const LossSum sum = decoder.loss(batch.ids_T, batch.targets_T, context);
    const at::Tensor loss = sum.loss / sum.count;
    loss.backward();
    const std::vector<Param> params = params_of(decoder);
    sum_partial_gradients(params, mesh);
    std::map<std::string, at::Tensor> grads;
    for (const Param& param : params) {
      const FullTensor whole = gather_full_tensor(param.value.grad(), param.spec, mesh);
      require(whole.disagreement == 0, param.name, ": ranks disagree by ", whole.disagreement);
      grads[param.name] = whole.value;
    }
    if (mesh.rank() != 0) return;
    std::ofstream(out / "loss.txt") << std::setprecision(17) << loss.item<double>() << "\n";
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
      std::string folder, ranks, sequence_parallel;
      std::getline(words, folder, ':');
      std::getline(words, ranks, ':');
      std::getline(words, sequence_parallel, ':');
      run(folder, std::stoi(ranks), sequence_parallel == "1");
    }
  } catch (const std::exception& error) {
    std::cerr << "trireme_parity_peer: error: " << error.what() << "\n";
    return 1;
  }
}
