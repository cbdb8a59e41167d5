#include "trireme/model/register_family.hpp"

#include <map>

#include "trireme/base/error.hpp"
#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/config/schema/registered_families.hpp"
#include "trireme/model/decoder.hpp"
#include "trireme/nn/init_scope.hpp"

namespace trireme {
namespace {

std::map<std::string, ModelFamily, std::less<>>& model_families() {
  static std::map<std::string, ModelFamily, std::less<>> all;
  return all;
}

/// Of a model without memory, on a mesh of one rank: specs do not depend on the mesh.
config::OwnParameters parameters_of_decoder(const ModelConfig& model) {
  config::OwnParameters out;
  out.layers.resize(static_cast<std::size_t>(model.num_hidden_layers));
  run_ranks(1, [&](World& world) {
    const Grid grid = Grid::dense({});
    Mesh mesh(grid, world, {},
              model.num_local_experts > 0 ? std::optional(expert_view(grid, 1)) : std::optional<Grid>());
    const InitScope scope(at::kMeta, at::kFloat);
    const Decoder decoder(model, mesh);
    for (const auto& child : decoder.named_children()) {
      if (child.key() == "norm")
        for (Param& param : params_of(*child.value()))
          out.norm.push_back({"norm." + param.name, std::move(param.spec)});
      if (child.key() != "layers") continue;
      for (const auto& layer : child.value()->named_children())
        for (Param& param : params_of(*layer.value()))
          out.layers[std::stoul(layer.key())].push_back({std::move(param.name), std::move(param.spec)});
    }
  });
  return out;
}

}  // namespace

void register_family(ModelFamily family) {
  const bool has_parts = family.attention != nullptr || family.mlp != nullptr;
  require<ConfigError>(family.layer != nullptr || has_parts, "register_family: ", family.name,
                       " has no layer, attention or MLP of its own",
                       "\n  fix: .layer = a function that makes one, or .attention, .mlp");
  require<ConfigError>(family.layer == nullptr || !has_parts, "register_family: ", family.name,
                       " has a layer, and parts of a layer",
                       "\n  fix: .layer alone, which makes its own parts, or .attention and .mlp without it");
  config::add_family(family.name, family.like, parameters_of_decoder);
  const std::string name = family.name;
  model_families().emplace(name, std::move(family));
}

const ModelFamily* find_model_family(std::string_view name) {
  const auto found = model_families().find(name);
  return found == model_families().end() ? nullptr : &found->second;
}

}  // namespace trireme
