#pragma once
// The weights of a model in any format: our full parameters, of which any box can be read.
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/config/schema/config.hpp"
#include "trireme/files/safetensors_dtype.hpp"
#include "trireme/layout/slices.hpp"

namespace trireme::checkpoint {

/// A full parameter of ours.
struct ModelTensor {
  std::string name;  // "layers.3.attention.qkv.weight"
  files::SafetensorsDtype dtype = files::SafetensorsDtype::F32;
  Shape shape;
};

using FilesBeside = std::map<std::string, std::string>;  // base names and contents

class ModelSource {
 public:
  virtual ~ModelSource() = default;

  virtual const std::string& shown() const = 0;  // for messages
  virtual const ModelConfig& model() const = 0;  // derived
  /// In the order of parameter_names(model()).
  virtual const std::vector<ModelTensor>& tensors() const = 0;
  /// The elements of `box`, in row-major order and in the tensor's dtype. `out` is of that size.
  virtual void read(const ModelTensor& tensor, const Box& box, std::span<std::byte> out) const = 0;
  /// config.json and the tokenizer's files, as far as there are any.
  virtual const FilesBeside& files() const = 0;
  /// The dtype that the weights are written in unless the user names one; nullopt: each keeps its own.
  virtual std::optional<files::SafetensorsDtype> usual_dtype() const { return std::nullopt; }
  /// What the user should know about the folder; may be empty.
  virtual std::string note() const { return ""; }
};

/// Opens a Hugging Face folder, a checkpoint of ours or one of nanotron, by what is in it. CheckpointError if it is
/// none of them, and for all that is wrong with it; SecurityError for links that lead out of it.
std::unique_ptr<ModelSource> open_model(const std::filesystem::path& path);

/// The small files of a folder that go with the weights: regular files up to 100 MB that are neither hidden nor
/// weights. SecurityError for a link that leads out of the folder. `note` names the larger ones. `also_not`: names that
/// are left out.
FilesBeside files_beside(const std::filesystem::path& folder, std::string& note,
                         const std::vector<std::string>& also_not = {});

/// CheckpointError that lists what is wrong with the tensors, if anything is, and the fix.
void require_fit(const std::string& shown, const std::vector<std::string>& wrong, const std::string& fix);

/// The whole of a tensor.
Box whole_box(const Shape& shape);
std::size_t bytes_of_box(const Box& box, files::SafetensorsDtype dtype);

}  // namespace trireme::checkpoint
