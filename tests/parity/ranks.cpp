// Tensor-parallel parity cells, and verify(), with processes as ranks: over Gloo on the CPU, over NCCL on GPUs.
//   trireme launch -n TP -- trireme_parity_ranks [--cuda] [--backend B] [--share-gpu] [--dtype f64|f32|bf16]
//                                                [--cells N]
// Each rank computes the reference by itself. Exit code 1: something is beyond its bound.
#include <iostream>
#include <map>

#include <ATen/ATen.h>

#include "tests/parity/tensor_parallel_cells.hpp"
#include "trireme/base/error.hpp"
#include "trireme/config/rules/validate.hpp"
#include "trireme/runtime/rank/parallel_context.hpp"
#include "trireme/runtime/rank/rank_main.hpp"
#include "trireme/verify/verify.hpp"

namespace {

using namespace trireme;
using namespace trireme::parity;

struct Words {
  ContextOptions context{.backend = "gloo"};
  bool cuda = false;
  at::ScalarType dtype = at::kDouble;
  std::size_t cells = 1000;
};

Words read_words(int argc, char** argv) {
  Words words;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] {
      require<ConfigError>(i + 1 < argc, word, " needs a value");
      return std::string(argv[++i]);
    };
    if (word == "--cuda")
      words.cuda = true;
    else if (word == "--backend")
      words.context.backend = value();
    else if (word == "--share-gpu")
      words.context.share_gpu = true;
    else if (word == "--cells")
      words.cells = std::stoul(value());
    else if (word == "--dtype") {
      const std::map<std::string, at::ScalarType> known{
          {"f64", at::kDouble}, {"f32", at::kFloat}, {"bf16", at::kBFloat16}};
      const auto it = known.find(value());
      require<ConfigError>(it != known.end(), "--dtype: f64, f32 or bf16");
      words.dtype = it->second;
    } else {
      throw ConfigError(text("unknown word \"", word, "\""));
    }
  }
  return words;
}

/// Rounding errors only: 1e-12 in f64. For the others in units in the last place: 4 for a loss or a parameter, 12 for a
/// gradient, whose norm counts as at least a thousandth of that of all gradients (docs/parallelism/tensor.md).
Bounds bounds_of(at::ScalarType dtype) {
  if (dtype == at::kDouble) return {};
  const double unit = dtype == at::kFloat ? 0x1p-23 : 0x1p-7;
  return {.loss = 4 * unit, .gradient = 12 * unit, .least = 1e-3, .parameter = 4 * unit};
}

bool run_cells(const Words& words, const ParallelContext& context) {
  References references;
  std::size_t count = 0, gradients = 0, wrong = 0;
  double worst = 0;
  for (const Choice& choice : covering(all_choices())) {
    Cell cell = cell_of(choice);
    if (cell.degrees.tp != context.world_size() || count == words.cells) continue;
    ++count;
    cell.dtype = words.dtype;
    cell.device = words.cuda ? context.device() : at::Device(at::kCPU);
    const Outcome& reference = references.of(cell);
    const Outcome outcome = run(cell, context.mesh());
    const auto lines = judged(outcome, reference, bounds_of(words.dtype));
    gradients += outcome.gradients.size();
    for (std::size_t i = 0; i < outcome.losses.size(); ++i)
      worst = std::max(worst, std::abs(outcome.losses[i] / reference.losses[i] - 1));
    if (lines.empty()) continue;
    ++wrong;
    std::cerr << "rank " << context.rank() << ": " << cell.str() << ": " << lines.size() << " differences, first\n  "
              << lines[0] << "\n";
  }
  require<ConfigError>(count > 0, "no cell has tp = ", context.world_size(), ": start 1, 2 or 4 ranks");
  if (context.rank() == 0)
    std::cout << count << " cells on " << context.world_size() << " ranks, " << at::toString(words.dtype) << " on "
              << (words.cuda ? "CUDA" : "CPU") << " over " << words.context.backend << ", " << gradients
              << " gradients, largest relative difference of a loss " << worst << ", wrong " << wrong << "\n";
  return wrong == 0;
}

/// The library call, with ranks that are there already.
bool run_verify(const ParallelContext& context) {
  const int ranks = context.world_size();
  config::LoadedConfig loaded = config::load_config_text(
      "verify.toml", text("model.preset = 'tiny-llama'\ntraining.seq_len = 16\ntraining.micro_batch_size = 2\n",
                          "data = [ { sources = [ { path = 'synthetic' } ] } ]\nparallelism.tp = ", ranks, "\n"));
  config::check_config(loaded, {.ranks = ranks, .how = "", .ranks_of_a_host = ranks});
  const VerifyResult result = verify(loaded.config, context);
  require(result.gradients.size() == 26 && result.losses.size() == 2, "verify: ", result.gradients.size(),
          " gradients of ", result.losses.size(), " steps");
  if (context.rank() == 0) std::cout << result.str() << "\n";
  return result.passed;
}

}  // namespace

int main(int argc, char** argv) {
  const RankMain how{.words = {argv, argv + argc}, .variables = process_variables(), .quiet = true};
  bool right = true;
  const int code = rank_main(how, [&](const Environment& env) {
    const Words words = read_words(argc, argv);
    const ParallelContext context({.tensor_parallel_size = env.world_size}, env, how.variables, words.context);
    right = run_cells(words, context);
    if (words.dtype == at::kDouble) right &= run_verify(context);
  });
  return code != 0 ? code : right ? 0 : 1;
}
