#include "trireme/workloads/workload.hpp"

#include <algorithm>
#include <cmath>
#include <variant>

#include <ATen/ops/empty.h>

#include "trireme/base/error.hpp"
#include "trireme/base/philox.hpp"
#include "trireme/workloads/models.hpp"
#include "trireme/workloads/orbit_diagrams.hpp"
#include "trireme/workloads/text_data.hpp"

namespace trireme::workloads {
namespace {

struct Preset {
  std::string name;
  std::variant<OrbitModelOptions, BertModelOptions> model;
};

// giotto-deep's benchmark has models of the same names. Its orbit5k has 2 layers, 8 heads and width 16, its orbit5kbig
// 8 layers, 32 heads and width 128, over whole diagrams (about 1,500 pairs) of 5,000 orbits; its bert and bertbig are
// the pretrained bert-base and bert-large (12 and 24 layers, width 768 and 1024, 110 and 340 million parameters) on
// 4,000 sentences of 64 tokens. These fit two CPU cores: with one thread, an epoch over 400 samples in batches of 16
// takes 1 s (orbit5k), 9 s (orbit5kbig), 1.6 s (bert) and 31 s (bertbig) on a Neoverse-N1. Our orbit5k is wider than
// theirs: a width of 16 measures overhead only.
const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = {
      {"orbit5k", OrbitModelOptions{.layers = 2, .block = {.width = 64, .heads = 4, .hidden = 128}}},
      {"orbit5kbig", OrbitModelOptions{.layers = 5, .block = {.width = 128, .heads = 8, .hidden = 512}}},
      {"bert", BertModelOptions{.layers = 2, .block = {.width = 128, .heads = 2, .hidden = 512}}},
      {"bertbig",
       BertModelOptions{
           .vocabulary = 4000, .length = 64, .layers = 6, .block = {.width = 256, .heads = 4, .hidden = 1024}}},
  };
  return all;
}

/// By our generator instead of torch's, whose state is global and shared by the threads of a process: matrices uniform
/// within +-1 / sqrt(inputs), biases 0, scales of norms 1.
void set_initial_weights(torch::nn::Module& model, std::uint64_t seed) {
  const at::NoGradGuard no_grad;
  for (auto& item : model.named_parameters()) {
    at::Tensor& parameter = item.value();
    if (parameter.dim() < 2) {
      if (item.key().ends_with("bias")) parameter.zero_();
      continue;
    }
    const RandomStream random(seed, "init " + item.key());
    const auto bound = static_cast<float>(1 / std::sqrt(static_cast<double>(parameter.size(-1))));
    const at::Tensor values = at::empty(parameter.sizes(), at::kFloat);
    auto* out = values.mutable_data_ptr<float>();
    for (std::int64_t i = 0; i < values.numel(); ++i)
      out[i] = bound * (2 * random.uniform_float(static_cast<std::uint64_t>(i)) - 1);
    parameter.copy_(values);
  }
}

void fill(Workload& out, const OrbitModelOptions& options, std::int64_t samples, std::int64_t validation,
          std::uint64_t seed) {
  out.model = orbit_model(options);
  auto train = orbit_diagrams(Part::train, samples, seed);
  auto held_out = orbit_diagrams(Part::validation, validation, seed);
  out.train_x = train.x, out.train_y = train.y;
  out.validation_x = held_out.x, out.validation_y = held_out.y;
}

void fill(Workload& out, const BertModelOptions& options, std::int64_t samples, std::int64_t validation,
          std::uint64_t seed) {
  out.model = bert_model(options);
  TextDataOptions data{.samples = samples,
                       .length = options.length,
                       .vocabulary = options.vocabulary,
                       .classes = static_cast<int>(options.classes)};
  auto train = text_data(data, seed, "train");
  data.samples = validation;
  auto held_out = text_data(data, seed, "validation");
  out.train_x = train.x, out.train_y = train.y;
  out.validation_x = held_out.x, out.validation_y = held_out.y;
}

}  // namespace

const std::vector<std::string>& workload_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const Preset& preset : presets()) out.push_back(preset.name);
    return out;
  }();
  return names;
}

Workload make_workload(const std::string& name, std::int64_t samples, std::uint64_t seed) {
  const auto preset = std::find_if(presets().begin(), presets().end(), [&](const Preset& p) { return p.name == name; });
  if (preset == presets().end()) {
    std::string known;
    for (const std::string& other : workload_names()) known += (known.empty() ? "" : ", ") + other;
    throw ConfigError(text("there is no workload \"", name, "\"\n  fix: one of ", known));
  }
  Workload out;
  out.name = name;
  out.classes = std::visit([](const auto& options) { return static_cast<int>(options.classes); }, preset->model);
  require<ConfigError>(samples >= out.classes, name, ": samples = ", samples, " is less than one for each of ",
                       out.classes, " classes");
  const std::int64_t validation = std::max<std::int64_t>(samples / 4, out.classes);
  std::visit([&](const auto& options) { fill(out, options, samples, validation, seed); }, preset->model);
  set_initial_weights(*out.model, seed);
  return out;
}

}  // namespace trireme::workloads
