#include "trireme/checkpoint/sources/model_target.hpp"

#include <nlohmann/json.hpp>

#include "trireme/files/convert_dtype.hpp"

namespace trireme::checkpoint {

FilesBeside files_for(const ModelSource& source, std::optional<files::SafetensorsDtype> dtype) {
  FilesBeside files = source.files();
  if (!dtype) return files;
  auto json = nlohmann::ordered_json::parse(files.at("config.json"));  // the source has read it
  const bool named = json.contains("dtype") || json.contains("torch_dtype");
  for (const char* key : {"dtype", "torch_dtype"})
    if (!named || json.contains(key)) json[key] = files::torch_name(*dtype);
  files["config.json"] = json.dump(2) + "\n";
  return files;
}

}  // namespace trireme::checkpoint
