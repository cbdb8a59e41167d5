#pragma once
// Reads a box of a parameter in blocks of rows, so that memory does not grow with the model.
#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "trireme/checkpoint/sources/model_source.hpp"
#include "trireme/files/convert_dtype.hpp"

namespace trireme::checkpoint {

inline constexpr std::size_t kBlockBytes = std::size_t{16} << 20;

/// Reads `box` in `dtype`.
inline std::vector<std::byte> read_as(const ModelSource& source, const ModelTensor& tensor, const Box& box,
                                      files::SafetensorsDtype dtype) {
  std::vector<std::byte> own(bytes_of_box(box, tensor.dtype));
  source.read(tensor, box, own);
  if (dtype == tensor.dtype) return own;
  std::vector<std::byte> converted(bytes_of_box(box, dtype));
  files::convert_dtype(tensor.dtype, own, dtype, converted);
  return converted;
}

/// Calls use(part) for ranges of dim `dim` of `box` that have about kBlockBytes each, in order.
template <class Use>
void for_each_block(const Box& box, std::size_t dim, files::SafetensorsDtype dtype, const Use& use) {
  Box part = box;
  part[dim] = {0, 1};
  const std::size_t row = std::max<std::size_t>(1, bytes_of_box(part, dtype));
  const auto rows = static_cast<std::int64_t>(std::max<std::size_t>(1, kBlockBytes / row));
  for (std::int64_t begin = box[dim].begin; begin < box[dim].end; begin += rows) {
    part[dim] = {begin, std::min(begin + rows, box[dim].end)};
    use(part);
  }
}

}  // namespace trireme::checkpoint
