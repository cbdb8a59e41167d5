#include "trireme/nn/forward_context.hpp"

#include <ATen/ops/arange.h>

namespace trireme {

at::Tensor sees_own_document(const at::Tensor& documents_bs) {
  return documents_bs.unsqueeze(2).eq(documents_bs.unsqueeze(1)).tril_().unsqueeze(1);
}

ForwardContext whole_samples(std::int64_t batch, std::int64_t length, std::int64_t first_sample, at::Device device) {
  const auto options = at::TensorOptions().dtype(at::kLong).device(device);
  ForwardContext context;
  context.batch = batch;
  context.length = context.whole_length = length;
  context.samples_T = at::arange(first_sample, first_sample + batch, options).repeat_interleave(length);
  context.positions_T = at::arange(length, options).repeat({batch});
  return context;
}

}  // namespace trireme
