#include "trireme/train/save/save_weights.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include <ATen/ops/isfinite.h>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/checkpoint/format/commit.hpp"
#include "trireme/checkpoint/format/exported_files.hpp"
#include "trireme/checkpoint/format/reader.hpp"
#include "trireme/comm/group_text.hpp"
#include "trireme/comm/time_limit.hpp"
#include "trireme/describe/weight_names.hpp"
#include "trireme/files/safetensors_folder_write.hpp"
#include "trireme/model/hugging_face.hpp"
#include "trireme/parallel/state/file_dtypes.hpp"
#include "trireme/parallel/zero/collective_state_dict.hpp"
#include "trireme/parallel/zero/saved_state.hpp"
#include "trireme/train/setup/dtypes.hpp"

namespace trireme {
namespace {

/// Hugging Face names by the library's names.
std::map<std::string, std::vector<WeightName>> names_by_ours(const ModelConfig& model) {
  std::map<std::string, std::vector<WeightName>> names;
  for (WeightName& name : weight_names(model)) names[name.ours].push_back(std::move(name));
  return names;
}

/// InternalError for a weight of the model that would not be written.
std::vector<files::SafetensorsTensor> tensors_of(const Zero& zero,
                                                 const std::map<std::string, std::vector<WeightName>>& names) {
  std::vector<files::SafetensorsTensor> tensors;
  std::set<std::string> held;
  for (const ParamSection& section : zero.sections())
    for (const ModelParam& param : section.params) {
      held.insert(param.name);
      for (const WeightName& name : names.at(param.name))
        tensors.push_back({name.theirs, file_dtype(param.dtype), their_shape(name, param.shape)});
    }
  for (const auto& [ours, theirs] : names) require(held.contains(ours), "save_weights: Zero does not hold ", ours);
  return tensors;
}

}  // namespace

std::string missing_space(Zero& zero, const Config& config, const std::filesystem::path& folder) {
  std::uint64_t needed = 0;
  // From the config: all of this pipeline rank may be frozen.
  const auto trained_bytes = [&, master = c10::elementSize(scalar_type(config.precision.master)),
                              state = c10::elementSize(scalar_type(config.precision.states))](
                                 const std::string& param) { return master + zero.state_names(param).size() * state; };
  const std::uint64_t copies = config.checkpoint.format == "nanotron" ? 1 : 0;  // model/
  for (const ParamSection& section : zero.sections())
    for (const ModelParam& param : section.params) {
      const std::size_t weight = c10::elementSize(param.dtype);
      needed += static_cast<std::uint64_t>(numel(param.shape)) *
                ((param.is_trained ? trained_bytes(param.name) : weight) + copies * weight);
    }
  std::filesystem::path existing = std::filesystem::absolute(folder);
  std::error_code error;
  while (!std::filesystem::exists(existing, error) && existing.has_relative_path()) existing = existing.parent_path();
  const std::filesystem::space_info space = std::filesystem::space(existing, error);
  if (error || space.available >= needed) return "";  // some file systems do not tell; writing will
  return text(folder.string(), ": a checkpoint needs ", human_bytes(static_cast<double>(needed)), ", and ",
              human_bytes(static_cast<double>(space.available)),
              " are free on this disk\n  fix: free some, or another run.dir");
}

void save_weights(Zero& zero, Mesh& mesh, const ModelConfig& model, const SmallFiles& beside,
                  const std::filesystem::path& folder, StorageWatch* watch) {
  const at::NoGradGuard no_grad;
  const auto watched = [watch](const auto& operation) { watch == nullptr ? operation() : watch->run(operation); };
  const auto names = names_by_ours(model);
  std::optional<files::SafetensorsFolderWriter> writer;
  const LongWork writing(mesh.world(), 0);
  const std::vector<files::SafetensorsTensor> tensors = tensors_of(zero, names);
  if (mesh.rank() == 0) watched([&] { writer.emplace(folder, tensors); });
  for_each_full_param(zero, [&](const ModelParam& param, const at::Tensor& full) {
    if (!writer) return;
    for (const WeightName& name : names.at(param.name)) {
      const at::Tensor theirs = their_tensor(name, full).contiguous().cpu();
      watched([&] {
        writer->append(name.theirs, {static_cast<const std::byte*>(theirs.const_data_ptr()), theirs.nbytes()});
      });
      writing.progress();
    }
  });
  if (writer) {
    watched([&] {
      for (const auto& [name, contents] : beside) writer->add_file(name, contents);
      writer->publish([&] {
        writing.progress();
        if (watch != nullptr) watch->progress();
      });
    });
  }
  mesh.world_group().barrier().wait();  // no rank exits, which would end the job, before the folder is complete
}

void export_to_checkpoint(Zero& zero, Mesh& mesh, const ModelConfig& model, const std::filesystem::path& checkpoint,
                          const StallLimits& limits) {
  const LongWork exporting(mesh.world(), 0);
  const std::string from_checkpoint =
      text("nothing is lost: trireme convert ", checkpoint.string(), " OUT --to hf creates them from the checkpoint");
  std::optional<StorageWatch> watch;
  if (mesh.rank() == 0)
    watch.emplace(StorageWatchOptions{
        .limits = limits,
        .path = checkpoint.string(),
        .on_stall = text("the checkpoint is saved, but without the weights for transformers; ", from_checkpoint),
        .is_alive = [&exporting] { exporting.progress(); }});
  files::Fs& fs = files::real_fs();
  std::filesystem::path folder;
  try {
    if (watch)
      watch->run([&] {
        if (!checkpoint::exported_in(checkpoint, checkpoint::manifest_in(checkpoint).id))
          folder = checkpoint::begin_export(fs, checkpoint);
      });
    if (broadcast_text(mesh.world().control(), folder.string()).empty()) return;
    save_weights(zero, mesh, model, {}, folder, watch ? &*watch : nullptr);
    if (watch)
      watch->run([&] {
        checkpoint::add_exported(fs, folder, checkpoint, [&] {
          exporting.progress();
          watch->progress();
        });
      });
    mesh.world().control().barrier().wait();  // no rank exits, which would end the job, before they are all there
  } catch (const CheckpointError& e) {        // on rank 0, perhaps in the middle of what the ranks do together
    if (!folder.empty()) checkpoint::remove_folder(fs, folder);
    throw CheckpointError(text(checkpoint.string(), " is saved, but without the weights for transformers: ", e.what(),
                               "\n  ", from_checkpoint));
  }
}

std::vector<std::string> not_finite_weights(const Zero& zero, Mesh& mesh) {
  std::string own;
  for (const StateSlice& slice : slices_to_load(zero)) {
    const std::string line = slice.name + "\n";
    if (slice.kind == "weight" && !own.ends_with(line) && !at::isfinite(slice.values).all().item<bool>()) own += line;
  }
  std::string all;
  for (const std::string& names : gather_texts(mesh.world().control(), own)) all += names;
  std::istringstream lines(broadcast_text(mesh.world().control(), all));
  std::vector<std::string> names;
  for (std::string name; std::getline(lines, name);)
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  return names;
}

}  // namespace trireme
