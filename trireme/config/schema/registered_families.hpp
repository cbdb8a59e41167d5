#pragma once
// Families of models that a program adds to the built-in ones: the half of trireme::register_family() that needs no
// torch. The other half, which builds the layers, is model/register_family.hpp.
#include <functional>
#include <string>
#include <vector>

#include "trireme/config/schema/family.hpp"
#include "trireme/layout/param_spec.hpp"

namespace trireme::config {

struct NamedSpec {
  std::string name;
  ParamSpec spec;
};
/// What a registered family holds apart from its embedding and its head.
struct OwnParameters {
  std::vector<std::vector<NamedSpec>> layers;  // names within the layer
  std::vector<NamedSpec> norm;                 // the last one
};
using OwnParametersOf = std::function<OwnParameters(const ModelConfig& model)>;

// Note [Registered families]: all are known before the first config is read. A config that names one could not be read
// earlier, and from then on ranks, which may be threads, read the table without a lock.

/// The row of the built-in family `like` with another name. ConfigError: the name is empty, has characters other than
/// letters, digits and _ - ., or is taken; `like` is not built in; a config has been read.
void add_family(const std::string& name, const std::string& like, OwnParametersOf parameters);
/// Called when a config is read.
void close_families();

/// nullptr for any other name.
const FamilyInfo* find_registered_family(std::string_view name);
std::vector<std::string> registered_family_names();
/// Of a model of a registered family, with derived values.
OwnParameters own_parameters(const ModelConfig& model);

/// ConfigError for a model of a registered family: `what` cannot be done with it, because only built-in families have
/// names in other formats. "a Hugging Face folder of my_decoder: ...".
void require_built_in(const ModelConfig& model, const std::string& what);

}  // namespace trireme::config
