#include "trireme/train/save_weights.hpp"

#include <map>
#include <set>

#include <ATen/ops/isfinite.h>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/comm/time_limit.hpp"
#include "trireme/config/schema/weight_names.hpp"
#include "trireme/files/safetensors_folder_write.hpp"
#include "trireme/model/hugging_face.hpp"
#include "trireme/nn/full_tensor.hpp"

namespace trireme {
namespace {

files::SafetensorsDtype file_dtype(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble: return files::SafetensorsDtype::F64;
    case at::kFloat: return files::SafetensorsDtype::F32;
    case at::kHalf: return files::SafetensorsDtype::F16;
    default: return files::SafetensorsDtype::BF16;
  }
}

/// Hugging Face names by the library's names.
std::map<std::string, std::vector<WeightName>> names_by_ours(const ModelConfig& model) {
  std::map<std::string, std::vector<WeightName>> names;
  for (WeightName& name : weight_names(model)) names[name.ours].push_back(std::move(name));
  return names;
}

/// Calls f(parameter) once per parameter, in the order in which they are written: per part, the buckets in forward
/// order; then the frozen ones.
template <class F>
void for_each_param(Zero& zero, const F& f) {
  for (ZeroPart* part : zero.parts())
    for (std::size_t b = part->partition.num_buckets(); b-- > 0;) {
      const FlatBucket& bucket = part->partition.bucket(b);
      for (std::size_t s = bucket.slots.size(); s-- > 0;) f(part->partition.params()[bucket.slots[s].item]);
    }
  for (const Param& param : zero.frozen()) f(param);
}

/// InternalError for a weight of the model that would not be written.
std::vector<files::SafetensorsTensor> tensors_of(Zero& zero,
                                                 const std::map<std::string, std::vector<WeightName>>& names) {
  std::vector<files::SafetensorsTensor> tensors;
  std::set<std::string> held;
  for_each_param(zero, [&](const Param& param) {
    held.insert(param.name);
    for (const WeightName& name : names.at(param.name)) {
      std::vector<std::int64_t> shape(param.spec.shape.begin(), param.spec.shape.end());
      shape[0] = name.rows;
      if (name.transposed) std::swap(shape[0], shape[1]);
      tensors.push_back({name.theirs, file_dtype(param.value.scalar_type()), std::move(shape)});
    }
  });
  for (const auto& [ours, theirs] : names) require(held.contains(ours), "save_weights: Zero does not hold ", ours);
  return tensors;
}

}  // namespace

std::string missing_space_for_weights(Zero& zero, const ModelConfig& model, const std::filesystem::path& folder) {
  std::uint64_t needed = 0;
  for (const files::SafetensorsTensor& tensor : tensors_of(zero, names_by_ours(model))) {
    auto bytes = static_cast<std::uint64_t>(files::bits(tensor.dtype)) / 8;
    for (const std::int64_t size : tensor.shape) bytes *= static_cast<std::uint64_t>(size);
    needed += bytes;
  }
  std::filesystem::path existing = std::filesystem::absolute(folder);
  std::error_code error;
  while (!std::filesystem::exists(existing, error) && existing.has_relative_path()) existing = existing.parent_path();
  const std::filesystem::space_info space = std::filesystem::space(existing, error);
  if (error || space.available >= needed) return "";  // some file systems do not tell; writing will
  return text(folder.string(), ": the weights need ", human_bytes(static_cast<double>(needed)), ", and ",
              human_bytes(static_cast<double>(space.available)),
              " are free on this disk\n  fix: free some, or another run.dir");
}

std::vector<std::string> save_weights(Zero& zero, Mesh& mesh, const ModelConfig& model, const SmallFiles& beside,
                                      const std::filesystem::path& folder) {
  const at::NoGradGuard no_grad;
  const auto names = names_by_ours(model);
  std::vector<std::string> not_finite;
  std::optional<files::SafetensorsFolderWriter> writer;
  const LongWork writing(mesh.world(), 0);
  const std::vector<files::SafetensorsTensor> tensors = tensors_of(zero, names);
  if (mesh.rank() == 0) writer.emplace(folder, tensors);
  const auto write = [&](const Param& param) {
    const at::Tensor full = gather_full_tensor(param.value.detach(), param.spec, mesh).value;
    if (!at::isfinite(full).all().item<bool>()) not_finite.push_back(param.name);
    if (!writer) return;
    for (const WeightName& name : names.at(param.name)) {
      const at::Tensor theirs = their_tensor(name, full).contiguous().cpu();
      writer->append(name.theirs, {static_cast<const std::byte*>(theirs.const_data_ptr()), theirs.nbytes()});
      writing.progress();
    }
  };
  for (ZeroPart* part : zero.parts())
    for (std::size_t b = part->partition.num_buckets(); b-- > 0;)
      part->params.with_whole(b, [&] {
        const FlatBucket& bucket = part->partition.bucket(b);
        for (std::size_t s = bucket.slots.size(); s-- > 0;) write(part->partition.params()[bucket.slots[s].item]);
      });
  for (const Param& param : zero.frozen()) write(param);
  if (writer) {
    for (const auto& [name, contents] : beside) writer->add_file(name, contents);
    writer->publish([&writing] { writing.progress(); });
  }
  mesh.world_group().barrier().wait();  // no rank exits, which would end the job, before the folder is complete
  return not_finite;
}

}  // namespace trireme
