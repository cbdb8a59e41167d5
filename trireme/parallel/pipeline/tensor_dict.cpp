#include "trireme/parallel/pipeline/tensor_dict.hpp"

#include "trireme/base/error.hpp"

namespace trireme {

TensorOrPointer::TensorOrPointer(at::Tensor tensor) : tensor_(std::move(tensor)) {
  require<ConfigError>(tensor_.defined(), "an undefined tensor cannot be an entry of a pipeline",
                       "\n  fix: a tensor, or a TensorPointer to the pipeline rank that has it");
}

const at::Tensor& TensorOrPointer::tensor() const {
  require<ConfigError>(!recorded_, "a tensor was asked for while the model is recorded: nothing is computed then",
                       "\n  fix: compute inside of blocks; above them the model only says which block gets what");
  require<ConfigError>(is_tensor(), "the tensor is on pipeline rank ", pointer_.group_rank,
                       ", here is a pointer to it");
  return tensor_;
}

TensorPointer TensorOrPointer::pointer() const {
  require<ConfigError>(!is_tensor(), "the tensor is on this rank, there is no pointer to it");
  return pointer_;
}

TensorDict::TensorDict(std::initializer_list<Entries::value_type> entries) {
  for (const auto& entry : entries)
    require<ConfigError>(entries_.insert(entry).second, "the key '", entry.first, "' is twice in a dictionary");
}

TensorOrPointer TensorDict::operator[](const std::string& key) const {
  const auto found = entries_.find(key);
  require<ConfigError>(found != entries_.end(), name_, " has no '", key, "': its keys are ", in_braces(keys()));
  return found->second;
}

std::vector<std::string> TensorDict::keys() const {
  std::vector<std::string> out;
  for (const auto& [key, value] : entries_) out.push_back(key);
  return out;
}

std::string in_braces(const std::vector<std::string>& keys) {
  std::string out = "{";
  for (const std::string& key : keys) out += (out.size() > 1 ? ", " : "") + key;
  return out + "}";
}

}  // namespace trireme
