#include "trireme/train/save/load_state.hpp"

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <span>

#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/sources/model_source.hpp"
#include "trireme/layout/box_copy.hpp"
#include "trireme/train/setup/dtypes.hpp"

namespace trireme {
namespace {

using TensorKey = std::pair<std::string, std::string>;  // name and kind
using Wanted = std::map<TensorKey, std::vector<StateSlice>>;

Wanted wanted_by_tensor(const Zero& zero, const LoadOptions& options) {
  Wanted wanted;
  for (StateSlice& slice : options.one_replica_reads ? slices_to_read(zero) : slices_to_load(zero))
    if (options.states || slice.kind == checkpoint::kWeight)
      wanted[{slice.name, slice.kind}].push_back(std::move(slice));
  return wanted;
}

/// The shapes of the full tensors of a model; a rank need not hold a part of each.
std::map<TensorKey, Shape> tensors_of_model(const Zero& zero, const LoadOptions& options) {
  std::map<TensorKey, Shape> shapes;
  for (const ParamSection& section : zero.sections())
    for (const ModelParam& param : section.params) {
      shapes[{param.name, checkpoint::kWeight}] = param.shape;
      if (!options.states || !param.is_trained) continue;
      for (const std::string& state : zero.state_names(param.name)) shapes[{param.name, state}] = param.shape;
    }
  return shapes;
}

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

std::vector<std::string> tensor_differences(const checkpoint::Manifest& manifest, const Zero& zero,
                                            const LoadOptions& options) {
  std::vector<std::string> out;
  const std::map<TensorKey, Shape> model = tensors_of_model(zero, options);
  for (const auto& [key, shape] : model) {
    const auto& [name, kind] = key;
    const checkpoint::StoredTensor* stored = checkpoint::find(manifest, name, kind);
    if (stored == nullptr && numel(shape) == 0) continue;  // nothing to save
    if (stored == nullptr)
      out.push_back(text(name, " (", kind, ") is not in the checkpoint"));
    else if (stored->shape != shape)
      out.push_back(text(name, " (", kind, ") has shape ", tuple_text(stored->shape), " in the checkpoint, ",
                         tuple_text(shape), " in the model"));
  }
  for (const checkpoint::StoredTensor& stored : manifest.tensors)
    if (!checkpoint::is_of_rank(stored.kind) && stored.kind != checkpoint::kModel &&
        (options.states || stored.kind == checkpoint::kWeight) && !model.contains({stored.name, stored.kind}))
      out.push_back(text(stored.name, " (", stored.kind, ") of the checkpoint has no place in the model"));
  return out;
}

void load_state(const checkpoint::Reader& reader, const Zero& zero, const LoadOptions& options) {
  const Wanted wanted = wanted_by_tensor(zero, options);
  checkpoint::require_fit(
      reader.shown(), tensor_differences(reader.manifest(), zero, options),
      "the model settings that the checkpoint was made with (trireme checkpoint inspect shows them)");
  std::map<const StateSlice*, std::atomic<std::int64_t>> set;
  for (const auto& [key, slices] : wanted)
    for (const StateSlice& slice : slices) set[&slice] = 0;
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
  for (const auto& [key, slices] : wanted)
    for (const StateSlice& slice : slices)
      require<CheckpointError>(set.at(&slice) == slice.values.numel(), reader.shown(), ": ", key.first, " (",
                               key.second, ") ", str(slice.box), ": its slices overlap or leave a hole");
}

}  // namespace trireme
