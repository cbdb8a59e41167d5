#pragma once
// Tensors whose memory comes and goes while their views stay: for parameters that exist only while they are in use.
#include <ATen/core/Tensor.h>

namespace trireme {

/// Frees the memory of `x` and of all its views, which must not be read until allocate_storage().
inline void free_storage(const at::Tensor& x) {
  c10::StorageImpl& storage = *x.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  storage.set_data_ptr_noswap(storage.allocator()->allocate(0));
  storage.set_nbytes(0);
}

/// New, uninitialized memory for `x`, a contiguous tensor that is its whole storage. Allocated anew each time: freed
/// memory stays available to all other tensors, unlike in a private pool.
inline void allocate_storage(const at::Tensor& x) {
  c10::StorageImpl& storage = *x.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  const std::size_t bytes = static_cast<std::size_t>(x.numel()) * x.element_size();
  storage.set_data_ptr_noswap(storage.allocator()->allocate(bytes));
  storage.set_nbytes(bytes);
}

}  // namespace trireme
