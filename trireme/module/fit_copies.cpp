#include "trireme/module/fit_copies.hpp"

#include <map>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

/// "head.weight" of a Sequential whose third child is called head: "2.weight".
std::string numbered(const torch::nn::Module& module, const std::string& name) {
  if (dynamic_cast<const torch::nn::SequentialImpl*>(&module) == nullptr) return name;
  const std::size_t dot = name.find('.');
  std::size_t number = 0;
  for (const auto& child : module.named_children()) {
    if (child.key() == name.substr(0, dot)) return text(number, dot == std::string::npos ? "" : name.substr(dot));
    ++number;
  }
  return name;
}

/// clone() makes new parameters: it forgets which are frozen, and which are shared.
void match(torch::nn::Module& copy, const torch::nn::Module& original) {
  const std::size_t own = distinct_parameters(copy).size(), wanted = distinct_parameters(original).size();
  require<ConfigError>(own == wanted, "fit: a clone() of the model has ", own, " parameters, the model ", wanted,
                       ": it shares some, which clone() does not keep\n",
                       "  fix: start the program as ranks, and give fit() their mesh");
  std::vector<at::Tensor> parameters = copy.parameters();
  const std::vector<at::Tensor> theirs = original.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i].set_requires_grad(theirs[i].requires_grad());
}

}  // namespace

void restore(torch::nn::Module& module, const std::vector<NamedTensor>& state, at::Device device) {
  const at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> places;
  for (const auto& list : {module.named_parameters(), module.named_buffers()})
    for (const auto& item : list) places[numbered(module, item.key())] = item.value();
  for (const NamedTensor& item : state) {
    const auto place = places.find(numbered(module, item.name));
    require(place != places.end(), "fit: the trained model has '", item.name, "', which the module does not have");
    place->second.set_data(item.value.to(device));
  }
}

std::unique_ptr<FitModel> copy_of(FitModel& model) {
  try {
    std::unique_ptr<FitModel> copy = model.copy();
    match(copy->module(), model.module());
    return copy;
  } catch (const c10::Error& error) {
    throw ConfigError(text("fit: ", error.what_without_backtrace(), "\n  fix: derive the module from ",
                           "torch::nn::Cloneable; or start the program as ranks, and give fit() their mesh"));
  }
}

}  // namespace trireme
