#include "trireme/parallel/state/host_copies.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "trireme/checkpoint/format/shard_writer.hpp"

namespace trireme {

HostCopies::HostCopies(std::optional<at::Device> device) {
  if (!device || device->is_cpu()) return;
  device_ = device;
  const c10::impl::VirtualGuardImpl guard(device_->type());
  ready_ = std::make_shared<c10::Event>(device_->type());
  ready_->record(guard.getStream(*device_));
}

at::Tensor HostCopies::of(const at::Tensor& values) {
  const c10::InferenceMode no_autograd;
  if (!device_ || values.device() != *device_) return values.contiguous().cpu();
  const c10::impl::VirtualGuardImpl guard(device_->type());
  if (!stream_) {
    stream_ = guard.getStreamFromGlobalPool(*device_);
    ready_->block(*stream_);
    pinned_ = at::empty({static_cast<std::int64_t>(checkpoint::kMaxSliceBytes)},
                        at::TensorOptions(at::kByte).pinned_memory(true));
  }
  const c10::StreamGuard on(*stream_);
  const at::Tensor host =
      pinned_.narrow(0, 0, static_cast<std::int64_t>(values.nbytes())).view(values.scalar_type()).view(values.sizes());
  host.copy_(values, /*non_blocking=*/true);
  stream_->synchronize();
  return host;
}

}  // namespace trireme
