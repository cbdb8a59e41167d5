#include "trireme/train/save/load_state.hpp"

#include <map>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/sources/model_source.hpp"
#include "trireme/parallel/state/read_slices.hpp"

namespace trireme {
namespace {

using TensorKey = std::pair<std::string, std::string>;  // name and kind

/// The shapes of the full tensors of a model; a rank need not hold a part of each.
std::map<TensorKey, Shape> tensors_of_model(const Zero& zero, const LoadOptions& options) {
  std::map<TensorKey, Shape> shapes;
  for (const ParamSection& section : zero.sections())
    for (const ModelParam& param : section.params) {
      shapes[{param.name, checkpoint::kWeight}] = param.shape;
      if (!options.states || !param.is_trained) continue;
      for (const std::string& state : zero.state_names(param.name)) shapes[{param.name, state}] = param.shape;
    }
  return shapes;
}

}  // namespace

std::vector<std::string> tensor_differences(const checkpoint::Manifest& manifest, const Zero& zero,
                                            const LoadOptions& options) {
  std::vector<std::string> out;
  const std::map<TensorKey, Shape> model = tensors_of_model(zero, options);
  for (const auto& [key, shape] : model) {
    const auto& [name, kind] = key;
    const checkpoint::StoredTensor* stored = checkpoint::find(manifest, name, kind);
    if (stored == nullptr && numel(shape) == 0) continue;  // nothing to save
    if (stored == nullptr)
      out.push_back(text(name, " (", kind, ") is not in the checkpoint"));
    else if (stored->shape != shape)
      out.push_back(text(name, " (", kind, ") has shape ", tuple_text(stored->shape), " in the checkpoint, ",
                         tuple_text(shape), " in the model"));
  }
  for (const checkpoint::StoredTensor& stored : manifest.tensors)
    if (!checkpoint::is_of_rank(stored.kind) && stored.kind != checkpoint::kModel &&
        (options.states || stored.kind == checkpoint::kWeight) && !model.contains({stored.name, stored.kind}))
      out.push_back(text(stored.name, " (", stored.kind, ") of the checkpoint has no place in the model"));
  return out;
}

void load_state(const checkpoint::Reader& reader, const Zero& zero, const LoadOptions& options) {
  checkpoint::require_fit(
      reader.shown(), tensor_differences(reader.manifest(), zero, options),
      "the model settings that the checkpoint was made with (trireme checkpoint inspect shows them)");
  std::vector<StateSlice> wanted = options.one_replica_reads ? slices_to_read(zero) : slices_to_load(zero);
  if (!options.states) std::erase_if(wanted, [](const StateSlice& slice) { return slice.kind != checkpoint::kWeight; });
  read_slices(reader, wanted);
}

}  // namespace trireme
