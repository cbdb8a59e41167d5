#include "trireme/nn/forward_context.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>

namespace trireme {

at::Tensor ForwardContext::rows_T() const { return samples_T * whole_length + positions_T; }

ForwardContext whole_samples(std::int64_t batch, std::int64_t length, std::int64_t first_sample, at::Device device) {
  const auto options = at::TensorOptions().dtype(at::kLong).device(device);
  ForwardContext context;
  context.batch = batch;
  context.length = context.whole_length = length;
  context.samples_T = at::arange(first_sample, first_sample + batch, options).repeat_interleave(length);
  context.positions_T = at::arange(length, options).repeat({batch});
  return context;
}

at::Tensor select_tokens(const at::Tensor& x_bS, const std::vector<Range>& tokens) {
  std::vector<at::Tensor> parts;
  for (const Range& range : tokens) parts.push_back(x_bS.narrow(1, range.begin, range.size()));
  return at::cat(parts, 1);
}

ForwardContext part_of_samples(const ForwardContext& whole, const std::vector<Range>& tokens) {
  ForwardContext part = whole;
  const auto cut = [&](const at::Tensor& x_T) {
    return x_T.defined() ? select_tokens(x_T.view({whole.batch, whole.length}), tokens).flatten() : x_T;
  };
  part.samples_T = cut(whole.samples_T);
  part.positions_T = cut(whole.positions_T);
  part.document_positions_T = cut(whole.document_positions_T);
  part.length = part.samples_T.size(0) / whole.batch;
  return part;
}

}  // namespace trireme
