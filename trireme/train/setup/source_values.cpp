#include "trireme/train/setup/source_values.hpp"

#include <algorithm>
#include <vector>

#include <ATen/ops/from_blob.h>

#include "trireme/base/error.hpp"
#include "trireme/parallel/state/file_dtypes.hpp"

namespace trireme {

ParamValues source_values(const checkpoint::ModelSource& source, const ParamMesh& mesh) {
  return [&source, mesh](const Param& param, Range range, const at::Tensor& out) {
    const auto tensor = std::ranges::find(source.tensors(), param.name, &checkpoint::ModelTensor::name);
    require<CheckpointError>(tensor != source.tensors().end(), source.shown(), ": has no weights of ", param.name);
    require<CheckpointError>(tensor->shape == param.spec.shape, source.shown(), ": ", param.name, " has the shape ",
                             tuple_text(tensor->shape), ", the model ", tuple_text(param.spec.shape));
    read_by_boxes(param, mesh, range, out, [&](const Box& global, at::Tensor into) {
      std::vector<std::byte> bytes(checkpoint::bytes_of_box(global, tensor->dtype));
      source.read(*tensor, global, bytes);
      into.copy_(at::from_blob(bytes.data(), into.sizes(), scalar_type(tensor->dtype)));
    });
  };
}

}  // namespace trireme
