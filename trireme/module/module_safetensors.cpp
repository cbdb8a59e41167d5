#include "trireme/module/module_safetensors.hpp"

#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/sources/model_source.hpp"
#include "trireme/files/safetensors_folder.hpp"
#include "trireme/files/safetensors_folder_write.hpp"
#include "trireme/module/agreed_failure.hpp"
#include "trireme/module/all_stages.hpp"
#include "trireme/module/module_parts.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
namespace cp = checkpoint;
using Rename = std::function<std::string(const std::string&)>;

std::string renamed(const Rename& rename, const std::string& name) { return rename ? rename(name) : name; }

/// The values that a rank needs, read and not yet applied.
class SafetensorsLoad {
 public:
  SafetensorsLoad(const fs::path& path, const ModuleParts& module, const LoadSafetensorsOptions& options)
      : folder_(path) {
    std::vector<std::string> wrong;
    std::set<std::string> used;
    const auto look_for = [&](const std::string& name, const Shape& shape, const std::vector<std::string>& aliases) {
      std::vector<std::string> names{name};
      names.insert(names.end(), aliases.begin(), aliases.end());
      for (const std::string& each : names) {
        const std::string stored = renamed(options.rename, each);
        const auto found = folder_.find(stored);
        if (!found) continue;
        used.insert(stored);
        const Shape its(found->entry.shape.begin(), found->entry.shape.end());
        if (its != shape)
          wrong.push_back(
              text(stored, " has shape ", tuple_text(its), " in the file, ", tuple_text(shape), " in the module"));
        else
          stored_.try_emplace(name, stored);
      }
      // Checkpoints hold no tensors without elements, nor do the files that are made of them.
      if (!stored_.contains(name) && options.strict && wrong.empty() && numel(shape) > 0)
        wrong.push_back(text(renamed(options.rename, name), " is not in the file"));
    };
    for (const WholeTensor& whole : module.all) look_for(whole.name, whole.shape, whole.aliases);
    if (options.strict)
      for (const std::string_view name : folder_.names())
        if (!used.contains(std::string(name))) wrong.push_back(text(name, " of the file has no place in the module"));
    cp::require_fit(folder_.shown(), wrong,
                    "LoadSafetensorsOptions::rename for other names; strict = false to load what there is");
    for (const NamedTensor& buffer : module.buffers) {
      const at::Tensor host = on_host(buffer.value);
      if (host.numel() > 0) read(whole_slice(buffer.name, kBufferKind, host));
      values_.emplace_back(buffer.value, host);
    }
    for (const KeptTensor& kept : module.kept) {
      const ShardTensor host{cp::kWeight, on_host(kept.tensor).view({-1})};
      for (const StateSlice& slice : held_slices(kept, {&host, 1}, module.mesh)) read(slice);
      values_.emplace_back(kept.tensor, host.flat);
    }
  }

  void apply() const {
    const at::NoGradGuard no_grad;
    for (const auto& [tensor, values] : values_) at::Tensor(tensor).copy_(values.view(tensor.sizes()));
  }

 private:
  static at::Tensor on_host(const at::Tensor& x) {
    return x.detach().contiguous().to(at::kCPU, x.scalar_type(), false, /*copy=*/true);
  }

  void read(const StateSlice& slice) const {
    const auto name = stored_.find(slice.name);
    if (name == stored_.end()) return;
    const at::ScalarType dtype = dtype_in_memory(folder_.shown(), name->second, folder_.at(name->second).entry.dtype);
    std::vector<std::int64_t> starts, sizes;
    for (const Range& range : slice.box) {
      starts.push_back(range.begin);
      sizes.push_back(range.size());
    }
    const at::Tensor values = at::empty(sizes, dtype);
    folder_.read(name->second, starts, sizes, {static_cast<std::byte*>(values.mutable_data_ptr()), values.nbytes()});
    at::Tensor(slice.values).copy_(values);
  }

  const files::SafetensorsFolder folder_;
  std::map<std::string, std::string> stored_;              // by name in the module: that in the file
  std::vector<std::pair<at::Tensor, at::Tensor>> values_;  // a tensor and its new elements
};

/// One file, or a folder.
class SafetensorsOutput {
 public:
  SafetensorsOutput(const fs::path& path, std::vector<files::SafetensorsTensor> tensors,
                    std::uint64_t max_shard_bytes) {
    if (path.extension() == ".safetensors")
      file_ = std::make_unique<files::SafetensorsWriter>(staged_.add(path), std::move(tensors));
    else
      folder_ = std::make_unique<files::SafetensorsFolderWriter>(path, std::move(tensors), max_shard_bytes);
  }
  void append(const std::string& name, const at::Tensor& value) {
    const at::Tensor host = value.detach().contiguous().cpu();
    const std::span bytes(static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes());
    file_ ? file_->append(name, bytes) : folder_->append(name, bytes);
  }
  void publish() {
    if (folder_) return folder_->publish();
    file_->finish();
    staged_.publish();
  }

 private:
  files::StagedFiles staged_;
  std::unique_ptr<files::SafetensorsWriter> file_;
  std::unique_ptr<files::SafetensorsFolderWriter> folder_;
};

/// In the order of for_each_whole().
std::vector<files::SafetensorsTensor> tensors_of(const ModuleParts& module, const Rename& rename) {
  std::vector<files::SafetensorsTensor> out;
  for (const WholeTensor& whole : module.all)
    out.push_back({renamed(rename, whole.name), stored_dtype(whole.name, whole.dtype), whole.shape});
  return out;
}

}  // namespace

void for_each_whole(const CheckpointedModule& what, const VisitTensor& f) {
  if (const Pipeline* pipeline = what.pipeline()) return pipeline->for_each_whole(f);
  const auto own = [&what](const VisitTensor& visit) {
    if (const ShardedModule* sharded = what.sharded()) return sharded->for_each_whole(visit);
    for (const Param& param : distinct_params(*what.module(), what.mesh()))
      visit(param.name, what.mesh() ? full_value(param, *what.mesh()) : param.value);
    for (const auto& buffer : what.module()->named_buffers()) visit(buffer.key(), buffer.value());
  };
  if (what.mesh() == nullptr) return own(f);
  Group& stages = what.mesh()->mesh().group(Axis::pp);
  for_each_of_all_stages(stages, stages.only_device().value_or(at::Device(at::kCPU)), own, f);
}

void load_safetensors(const CheckpointedModule& what, const fs::path& path, const LoadSafetensorsOptions& options) {
  const ModuleParts module = parts_of(what);
  std::unique_ptr<SafetensorsLoad> load;
  const Failure failure = failure_of([&] { load = std::make_unique<SafetensorsLoad>(path, module, options); });
  agree_on(what.group(), module.device, failure);
  load->apply();
}

void save_safetensors(const CheckpointedModule& what, const fs::path& path, const SaveSafetensorsOptions& options) {
  Group& group = what.group();
  const ModuleParts module = parts_of(what);
  std::unique_ptr<SafetensorsOutput> output;
  Failure failure = failure_of([&] {
    std::vector<files::SafetensorsTensor> tensors = tensors_of(module, options.rename);
    if (group.rank() == 0)
      output = std::make_unique<SafetensorsOutput>(path, std::move(tensors), options.max_shard_bytes);
  });
  agree_on(group, module.device, failure);
  for_each_whole(what, [&](const std::string& name, const at::Tensor& value) {
    if (!output || failure.code != ExitCode::done) return;  // all ranks take part until the end
    failure = failure_of([&] { output->append(renamed(options.rename, name), value); });
  });
  if (output && failure.code == ExitCode::done) failure = failure_of([&] { output->publish(); });
  agree_on(group, module.device, failure);
}

}  // namespace trireme
