#include "trireme/parallel/state/rank_files.hpp"

#include <algorithm>

#include <ATen/ops/zeros.h>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/format/reader.hpp"
#include "trireme/layout/box_copy.hpp"
#include "trireme/nn/layer.hpp"
#include "trireme/parallel/state/file_dtypes.hpp"

namespace trireme {

std::span<const std::byte> bytes_of(const at::Tensor& host) {
  return {static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes()};
}

std::vector<SavedPart> saved_parts(const std::vector<StateSlice>& slices) {
  std::vector<SavedPart> out;
  for (const StateSlice& slice : slices) {
    const auto most = static_cast<std::int64_t>(checkpoint::kMaxSliceBytes / slice.values.element_size());
    for (const Box& box : checkpoint::split_box(slice.box, most))
      out.push_back({{.name = slice.name,
                      .kind = slice.kind,
                      .dtype = file_dtype(slice.values.scalar_type()),
                      .shape = slice.shape,
                      .box = box},
                     box_view(slice.values, relative_to(box, slice.box))});
  }
  return out;
}

std::vector<SavedPart> rank_parts(int rank, const RankState& state) {
  std::vector<SavedPart> out;
  for (const auto& [kind, bytes] : state) {
    const auto size = static_cast<std::int64_t>(bytes.size());
    if (size == 0) continue;
    const at::Tensor values = at::zeros({size}, at::kByte);
    std::ranges::copy(bytes, values.mutable_data_ptr<std::uint8_t>());
    out.push_back({{.name = text("rank-", rank),
                    .kind = kind,
                    .dtype = files::SafetensorsDtype::U8,
                    .shape = {size},
                    .box = {{0, size}}},
                   values});
  }
  return out;
}

std::vector<RankFile> own_rank_files(int rank, const std::string& id, std::vector<SavedPart> parts) {
  const auto write = [id, parts = std::move(parts)](checkpoint::ShardWriter& writer, HostCopies& host) {
    std::vector<checkpoint::PlannedSlice> plan;
    for (const SavedPart& part : parts) plan.push_back(part.plan);
    const std::string header = checkpoint::rank_file_header(plan, id);
    writer.append(std::as_bytes(std::span(header)));
    for (const SavedPart& part : parts) writer.append(part.plan, bytes_of(host.of(part.values)));
  };
  return {{.name = checkpoint::rank_file_name(rank), .write = write}};
}

}  // namespace trireme
