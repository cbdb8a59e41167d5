#include "trireme/train/save_weights.hpp"

#include <fstream>
#include <map>
#include <sstream>

#include "trireme/base/error.hpp"
#include "trireme/config/foreign/hf_config_write.hpp"
#include "trireme/files/safetensors_folder_write.hpp"
#include "trireme/model/families.hpp"
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

/// Names in their files, by ours.
std::map<std::string, std::vector<WeightName>> names_by_ours(const ModelConfig& model) {
  std::map<std::string, std::vector<WeightName>> names;
  for (WeightName& name : weight_names(model)) names[name.ours].push_back(std::move(name));
  return names;
}

/// Every parameter once, in the order in which it is gathered: buckets as forward meets them.
template <class F>
void over_params(const Partition& partition, const F& f) {
  for (std::size_t b = partition.num_buckets(); b-- > 0;)
    for (std::size_t s = partition.bucket(b).slots.size(); s-- > 0;)
      f(b, partition.params()[partition.bucket(b).slots[s].item]);
}

std::vector<files::SafetensorsTensor> tensors_of(const Partition& partition,
                                                 const std::map<std::string, std::vector<WeightName>>& names) {
  std::vector<files::SafetensorsTensor> tensors;
  over_params(partition, [&](std::size_t, const Param& param) {
    for (const WeightName& name : names.at(param.name)) {
      std::vector<std::int64_t> shape(param.spec.shape.begin(), param.spec.shape.end());
      shape[0] = name.rows;
      if (name.transposed) std::swap(shape[0], shape[1]);
      tensors.push_back({name.theirs, file_dtype(partition.dtype()), std::move(shape)});
    }
  });
  return tensors;
}

void add_tokenizer(files::SafetensorsFolderWriter& writer, std::filesystem::path path) {
  if (std::filesystem::is_directory(path)) path /= "tokenizer.json";
  if (path.extension() != ".json" || !std::filesystem::is_regular_file(path)) return;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream contents;
  contents << file.rdbuf();
  writer.add_file("tokenizer.json", contents.str());
}

/// What stands beside the weights; then the folder appears.
void finish(files::SafetensorsFolderWriter& writer, const FolderFacts& facts) {
  if (what_transformers_lacks(facts.model, facts.dtype).empty()) {
    config::HfTokenIds tokens;
    if (facts.tokenizer)
      if (const auto end = facts.tokenizer->end_of_document()) tokens.eos = static_cast<std::int64_t>(*end);
    writer.add_file("config.json", config::hf_config_json(facts.model, facts.dtype, tokens));
  }
  if (!facts.tokenizer_path.empty()) add_tokenizer(writer, facts.tokenizer_path);
  writer.publish();
}

}  // namespace

std::string what_transformers_lacks(const ModelConfig& model, const std::string& dtype) {
  try {
    config::hf_config_json(model, dtype);
    return "";
  } catch (const ConfigError& e) {
    return e.what();
  }
}

void save_weights(Zero& zero, const FolderFacts& facts, const std::filesystem::path& folder) {
  const at::NoGradGuard no_grad;
  const Partition& partition = zero.partition();
  const auto names = names_by_ours(facts.model);
  std::optional<files::SafetensorsFolderWriter> writer;
  if (partition.mesh().rank() == 0) writer.emplace(folder, tensors_of(partition, names));
  for (std::size_t b = partition.num_buckets(); b-- > 0;)
    zero.params().with_whole(b, [&] {
      for (std::size_t s = partition.bucket(b).slots.size(); s-- > 0;) {
        const Param& param = partition.params()[partition.bucket(b).slots[s].item];
        const at::Tensor whole = gather_full_tensor(param.value.detach(), param.spec, partition.mesh()).value;
        if (!writer) continue;
        for (const WeightName& name : names.at(param.name)) {
          const at::Tensor theirs = their_tensor(name, whole).contiguous().cpu();
          writer->append(name.theirs, {static_cast<const std::byte*>(theirs.const_data_ptr()), theirs.nbytes()});
        }
      }
    });
  if (writer) finish(*writer, facts);
  partition.mesh().world_group().barrier().wait();  // nobody leaves, and ends the job, before the folder is there
}

}  // namespace trireme
