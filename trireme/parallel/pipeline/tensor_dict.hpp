#pragma once
// The tensors of a model over several pipeline ranks: each is on one rank, the others know where it is.
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trireme {

/// Stands for a tensor that is on another rank of the pipeline.
struct TensorPointer {
  int group_rank = 0;  // in the group of the pipeline
  bool operator==(const TensorPointer&) const = default;
};

/// A tensor of the model as this rank sees it: the tensor itself, or where it is.
class TensorOrPointer {
 public:
  TensorOrPointer(at::Tensor tensor);
  TensorOrPointer(TensorPointer pointer) : pointer_(pointer) {}

  bool is_tensor() const { return tensor_.defined(); }
  /// ConfigError unless it is here. While a model is recorded (pipeline_engine.hpp) no tensor is.
  const at::Tensor& tensor() const;
  /// ConfigError if the tensor is here.
  TensorPointer pointer() const;

 private:
  friend class PipelineBlockImpl;
  friend class BlockRecorder;
  struct Recorded {
    std::uint64_t recording;
    int node, output;
  };

  at::Tensor tensor_{};
  TensorPointer pointer_{};
  bool from_block_ = false;  // all ranks have it from the same call, and agree where the tensor is
  std::optional<Recorded> recorded_{};
};

/// The arguments or the results of a block, or a batch.
class TensorDict {
 public:
  using Entries = std::map<std::string, TensorOrPointer>;

  TensorDict() = default;
  TensorDict(std::initializer_list<Entries::value_type> entries);
  /// `name` is in the error messages: "the batch".
  TensorDict(Entries entries, std::string name) : entries_(std::move(entries)), name_(std::move(name)) {}

  /// ConfigError names the key, and those that are there.
  TensorOrPointer operator[](const std::string& key) const;
  bool contains(const std::string& key) const { return entries_.contains(key); }
  std::size_t size() const { return entries_.size(); }
  Entries::const_iterator begin() const { return entries_.begin(); }
  Entries::const_iterator end() const { return entries_.end(); }
  std::vector<std::string> keys() const;

 private:
  Entries entries_;
  std::string name_ = "the dictionary";
};

/// "{input, mask}"
std::string in_braces(const std::vector<std::string>& keys);

}  // namespace trireme
