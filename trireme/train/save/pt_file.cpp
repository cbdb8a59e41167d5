#include "trireme/train/save/pt_file.hpp"

#include <string>

#include <ATen/core/jit_type.h>
#include <ATen/ops/from_blob.h>
#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/pickler.h>

#include "trireme/base/error.hpp"
#include "trireme/parallel/state/file_dtypes.hpp"

namespace trireme {

PtContents::Dict PtContents::dict() { return Dict(c10::StringType::get(), c10::AnyType::get()); }

at::Tensor PtContents::placeholder(const SavedPart& part) {
  static std::byte nothing[64];  // never read: pickling needs only the dtype and the shape
  const at::Tensor stands_for = at::from_blob(nothing, part.values.sizes(), scalar_type(part.plan.dtype));
  parts_[stands_for.storage().unsafeGetStorageImpl()] = &part;
  return stands_for;
}

// As torch::pickle_save() does it, which would hold the whole file, and all of its tensors, in memory.
void PtContents::write(const Dict& value, checkpoint::ShardWriter& writer, HostCopies& host) const {
  std::string pickle;
  // Without tags for the types of dicts: weights_only=True refuses the function that restores them.
  torch::jit::Pickler pickler([&](const char* bytes, std::size_t size) { pickle.append(bytes, size); }, nullptr,
                              nullptr, nullptr, nullptr, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(value);
  pickler.stop();

  const SavedPart* part = nullptr;  // that is being written
  std::span<const std::byte> bytes;
  caffe2::serialize::PyTorchStreamWriter archive([&](const void* begin, std::size_t size) {
    if (part != nullptr && begin == bytes.data() && size == bytes.size()) {
      writer.append(part->plan, bytes);
      part = nullptr;
    } else {
      writer.append({static_cast<const std::byte*>(begin), size});
    }
    return size;
  });
  archive.writeRecord("data.pkl", pickle.data(), pickle.size());
  for (std::size_t i = 0; i < pickler.tensorData().size(); ++i) {
    part = parts_.at(pickler.tensorData()[i].storage().unsafeGetStorageImpl());
    const at::Tensor values = host.of(part->values);
    bytes = bytes_of(values);
    archive.writeRecord(text("data/", i), bytes.data(), bytes.size());
    require(part == nullptr, "a record of a .pt file was not written as it is");  // then its place is not known
  }
  archive.writeEndOfFile();
}

}  // namespace trireme
