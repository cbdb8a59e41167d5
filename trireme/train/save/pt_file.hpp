#pragma once
// Writes a .pt file, which torch.load(weights_only=True) opens, tensor by tensor.
#include <map>

#include <ATen/core/Dict.h>
#include <ATen/core/ivalue.h>

#include "trireme/parallel/state/rank_files.hpp"

namespace trireme {

/// A value of strings, numbers, dicts and tensors. Nothing else: weights_only=True allows no other types.
class PtContents {
 public:
  using Dict = c10::impl::GenericDict;
  static Dict dict();

  /// Stands for the part's tensor, whose bytes are read when the file is written: until then the part must live.
  at::Tensor placeholder(const SavedPart& part);

  /// The tensors come in the order in which the value has them.
  void write(const Dict& value, checkpoint::ShardWriter& writer, HostCopies& host) const;

 private:
  std::map<const c10::StorageImpl*, const SavedPart*> parts_;
};

}  // namespace trireme
