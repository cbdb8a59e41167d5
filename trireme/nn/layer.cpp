#include "trireme/nn/layer.hpp"

#include "trireme/nn/init_scope.hpp"

namespace trireme {

const ParamSpec* Layer::spec(const std::string& local_name) const {
  const auto it = specs_.find(local_name);
  return it == specs_.end() ? nullptr : &it->second;
}

int Layer::cut_degree(const std::string& local_name) const {
  const auto it = cut_degrees_.find(local_name);
  return it == cut_degrees_.end() ? 1 : it->second;
}

at::Tensor Layer::declare(const std::string& local_name, ParamSpec spec, const Parallel& parallel) {
  const Shape local = parallel.params.local_shape(spec);
  int degree = 1;
  for (const Cut& cut : spec.placement.cuts)
    degree *= parallel.params.mesh().params().grid(spec.placement.view).degree(cut.axis);
  cut_degrees_[local_name] = degree;
  specs_.insert_or_assign(local_name, std::move(spec));
  return register_parameter(local_name, at::empty(local, current_init_options()));
}

void set_paths(torch::nn::Module& root, const std::string& prefix) {
  if (auto* layer = dynamic_cast<Layer*>(&root)) layer->path_ = prefix;
  for (const auto& child : root.named_children())
    set_paths(*child.value(), prefix.empty() ? child.key() : prefix + "." + child.key());
}

namespace {

void collect(const torch::nn::Module& module, const std::string& prefix, std::vector<Param>& out) {
  const auto* layer = dynamic_cast<const Layer*>(&module);
  const auto full = [&](const std::string& local) { return prefix.empty() ? local : prefix + "." + local; };
  for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
    const ParamSpec* spec = layer ? layer->spec(parameter.key()) : nullptr;
    out.push_back({full(parameter.key()), parameter.value(),
                   spec ? *spec : ParamSpec{.shape = parameter.value().sizes().vec()}, spec != nullptr,
                   spec ? layer->cut_degree(parameter.key()) : 1});
  }
  for (const auto& child : module.named_children()) collect(*child.value(), full(child.key()), out);
}

}  // namespace

std::vector<Param> params_of(const torch::nn::Module& root) {
  std::vector<Param> params;
  collect(root, "", params);
  return params;
}

at::Tensor box_view(at::Tensor tensor, const Box& box) {
  for (std::size_t dim = 0; dim < box.size(); ++dim)
    tensor = tensor.narrow(static_cast<std::int64_t>(dim), box[dim].begin, box[dim].size());
  return tensor;
}

}  // namespace trireme
