#include <map>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/sources/model_target.hpp"
#include "trireme/checkpoint/sources/read_blocks.hpp"
#include "trireme/checkpoint/sources/transpose.hpp"
#include "trireme/describe/weight_names.hpp"
#include "trireme/files/safetensors_folder_write.hpp"

namespace trireme::checkpoint {

void write_hugging_face(const ModelSource& source, const std::filesystem::path& folder,
                        std::optional<files::SafetensorsDtype> dtype) {
  std::map<std::string, const ModelTensor*> ours;
  for (const ModelTensor& tensor : source.tensors()) ours.emplace(tensor.name, &tensor);
  const std::vector<WeightName> names = weight_names(source.model());
  std::vector<files::SafetensorsTensor> theirs;
  for (const WeightName& name : names) {
    const ModelTensor& tensor = *ours.at(name.ours);
    theirs.push_back({name.theirs, dtype.value_or(tensor.dtype), their_shape(name, tensor.shape)});
  }
  files::SafetensorsFolderWriter writer(folder, theirs);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const WeightName& name = names[i];
    const ModelTensor& tensor = *ours.at(name.ours);
    const Box box = part_of_weight(name, whole_box(tensor.shape)).value().ours;
    for_each_block(box, name.transposed || name.expert >= 0 ? 1 : 0, tensor.dtype, [&](const Box& part) {
      std::vector<std::byte> bytes = read_as(source, tensor, part, theirs[i].dtype);
      if (name.transposed) {
        std::vector<std::byte> turned(bytes.size());
        transpose(bytes, static_cast<std::size_t>(part[0].size()), static_cast<std::size_t>(part[1].size()),
                  static_cast<std::size_t>(files::bits(theirs[i].dtype)) / 8, turned);
        bytes.swap(turned);
      }
      writer.append(name.theirs, bytes);
    });
  }
  for (auto& [name, contents] : files_for(source, dtype)) writer.add_file(name, contents);
  writer.publish();
}

}  // namespace trireme::checkpoint
