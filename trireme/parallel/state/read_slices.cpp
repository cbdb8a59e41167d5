#include "trireme/parallel/state/read_slices.hpp"

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <span>
#include <string>
#include <utility>

#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>

#include "trireme/base/error.hpp"
#include "trireme/layout/box_copy.hpp"
#include "trireme/nn/layer.hpp"
#include "trireme/parallel/state/file_dtypes.hpp"

namespace trireme {
namespace {

using TensorKey = std::pair<std::string, std::string>;  // name and kind
using Wanted = std::map<TensorKey, std::vector<StateSlice>>;

/// A slice to read, and the memory that needs a part of it.
struct Reading {
  const checkpoint::StoredTensor* tensor;
  const checkpoint::StoredSlice* slice;
  const std::vector<StateSlice>* wanted;
};

/// In the order of the files.
std::vector<Reading> readings(const checkpoint::Manifest& manifest, const Wanted& wanted) {
  std::vector<Reading> out;
  for (const auto& [key, slices] : wanted) {
    const checkpoint::StoredTensor* tensor = checkpoint::find(manifest, key.first, key.second);
    if (tensor == nullptr) continue;
    for (const checkpoint::StoredSlice& slice : tensor->slices)
      if (std::ranges::any_of(slices, [&](const StateSlice& s) { return intersection(slice.box, s.box).has_value(); }))
        out.push_back({tensor, &slice, &slices});
  }
  std::ranges::sort(out, {}, [](const Reading& r) { return std::pair(r.slice->file, r.slice->offset); });
  return out;
}

/// Copies the elements of `common` from the row-major bytes of `box`; returns their number.
std::int64_t copy_part(std::span<const std::byte> bytes, files::SafetensorsDtype dtype, const Box& box,
                       const StateSlice& slice, const Box& common) {
  std::int64_t elements = 1;
  for (const Range& side : common) elements *= side.size();
  const at::ScalarType stored_type = scalar_type(dtype);
  if (slice.values.is_cpu() && slice.values.is_contiguous() && slice.values.scalar_type() == stored_type) {
    copy_box(bytes, box, {static_cast<std::byte*>(slice.values.data_ptr()), slice.values.nbytes()}, slice.box, common,
             slice.values.element_size());
    return elements;
  }
  const c10::InferenceMode no_autograd;
  Shape sizes;
  for (const Range& side : box) sizes.push_back(side.size());
  const at::Tensor stored = at::from_blob(const_cast<std::byte*>(bytes.data()), sizes, stored_type);
  at::Tensor target = box_view(slice.values, relative_to(common, slice.box));
  target.copy_(box_view(stored, relative_to(common, box)));
  return elements;
}

/// Calls f(i, buffer) for all i < count, in a few threads: one alone does not keep a disk busy. The first exception is
/// rethrown.
void for_each_in_threads(std::size_t count, const std::function<void(std::size_t, std::vector<std::byte>&)>& f) {
  constexpr std::size_t kThreads = 4;
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    try {
      std::vector<std::byte> buffer;
      for (std::size_t i; (i = next++) < count;) f(i, buffer);
    } catch (...) {
      next = count;
      throw;
    }
  };
  std::vector<std::future<void>> threads;
  for (std::size_t t = 0; t < std::min(kThreads, count); ++t) threads.push_back(std::async(std::launch::async, work));
  for (const std::future<void>& thread : threads) thread.wait();
  for (std::future<void>& thread : threads) thread.get();
}

}  // namespace

void read_slices(const checkpoint::Reader& reader, const std::vector<StateSlice>& slices) {
  Wanted wanted;
  for (const StateSlice& slice : slices) wanted[{slice.name, slice.kind}].push_back(slice);
  std::map<const StateSlice*, std::atomic<std::int64_t>> set;
  for (const auto& [key, of_tensor] : wanted)
    for (const StateSlice& slice : of_tensor) set[&slice] = 0;
  const std::vector<Reading> all = readings(reader.manifest(), wanted);
  for_each_in_threads(all.size(), [&](std::size_t i, std::vector<std::byte>& bytes) {
    const Reading& reading = all[i];
    const Box& box = reading.slice->box;
    bytes.resize(checkpoint::bytes_of(*reading.tensor, box));
    reader.read_slice(*reading.tensor, *reading.slice, bytes);
    for (const StateSlice& slice : *reading.wanted)
      if (const std::optional<Box> common = intersection(box, slice.box))
        set.at(&slice) += copy_part(bytes, reading.tensor->dtype, box, slice, *common);
  });
  for (const auto& [key, of_tensor] : wanted)
    for (const StateSlice& slice : of_tensor)
      require<CheckpointError>(set.at(&slice) == slice.values.numel(), reader.shown(), ": ", key.first, " (",
                               key.second, ") ", str(slice.box), ": its slices overlap or leave a hole");
}

}  // namespace trireme
