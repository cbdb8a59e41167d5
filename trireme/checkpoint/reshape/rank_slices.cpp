#include "trireme/checkpoint/reshape/rank_slices.hpp"

#include <algorithm>
#include <charconv>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/sources/model_source.hpp"
#include "trireme/config/schema/dense_grid.hpp"
#include "trireme/describe/parameters.hpp"
#include "trireme/describe/pipeline.hpp"
#include "trireme/layout/saver_of.hpp"

namespace trireme::checkpoint {
namespace {

/// All tensors of a parameter: in the manifest they are neighbours.
std::vector<const StoredTensor*> tensors_named(const Manifest& manifest, const std::string& name) {
  std::vector<const StoredTensor*> out;
  for (const StoredTensor& tensor : std::ranges::equal_range(manifest.tensors, name, {}, &StoredTensor::name))
    if (!is_of_rank(tensor.kind)) out.push_back(&tensor);
  return out;
}

/// 3 of "rank-3"; -1 for any other name.
int rank_of_state(std::string_view name) {
  constexpr std::string_view kBegin = "rank-";
  int rank = -1;
  if (name.starts_with(kBegin)) std::from_chars(name.data() + kBegin.size(), name.data() + name.size(), rank);
  return name == text(kBegin, rank) ? rank : -1;
}

void add_slice(const StoredTensor& tensor, const Box& box, std::vector<PlannedSlice>& out) {
  const auto most = static_cast<std::int64_t>(kMaxSliceBytes * 8 / static_cast<std::uint64_t>(bits(tensor.dtype)));
  for (Box& part : split_box(box, most))
    out.push_back({.name = tensor.name,
                   .kind = tensor.kind,
                   .dtype = tensor.dtype,
                   .shape = tensor.shape,
                   .box = std::move(part)});
}

}  // namespace

RankSlices::RankSlices(const Manifest& manifest, const ModelConfig& model, const ParallelismConfig& parallelism)
    : grid_(config::dense_grid(parallelism)),
      layout_(grid_, config::expert_grid(model, parallelism)),
      stages_(static_cast<std::size_t>(parallelism.pp)) {
  const std::vector<PipelineChunk> chunks = pipeline_chunks(model, parallelism);
  for (const trireme::Parameter& described : all_parameters(model)) {
    Stage& stage = stages_[static_cast<std::size_t>(stage_of_parameter(chunks, described.name))];
    Parameter parameter{
        .name = described.name,
        .spec = {.shape = described.spec.shape, .placement = without_extra_rows(described.spec.placement)},
        .tensors = tensors_named(manifest, described.name)};
    const Shape local = layout_.local_shape(parameter.spec);
    parameter.rows = local.front();
    parameter.row_elements = numel(local) / local.front();
    std::int64_t& elements = stage.elements[parameter.spec.placement.view];
    parameter.first_element = elements;
    elements += numel(local);
    stage.parameters.push_back(std::move(parameter));
  }
  const auto ranks = manifest.layout.find("world");
  keeps_random_ = ranks != manifest.layout.end() && ranks->second == world();
  if (!keeps_random_) return;
  for (const StoredTensor& tensor : manifest.tensors)
    if (const int rank = rank_of_state(tensor.name); tensor.kind == kRandom && 0 <= rank && rank < world())
      random_[rank] = &tensor;
}

Range RankSlices::rows_of_part(const Parameter& parameter, std::int64_t elements, std::int64_t part,
                               std::int64_t parts) {
  // The first row that begins at or after the cut.
  const auto row_at = [&](std::int64_t cut) {
    const std::int64_t element = elements / parts * cut + elements % parts * cut / parts;
    const std::int64_t row = (element - parameter.first_element + parameter.row_elements - 1) / parameter.row_elements;
    return std::clamp<std::int64_t>(row, 0, parameter.rows);
  };
  return {row_at(part), row_at(part + 1)};
}

std::vector<PlannedSlice> RankSlices::of_rank(int rank) const {
  const Stage& stage = stages_[static_cast<std::size_t>(grid_.coord(rank, Axis::pp))];
  std::vector<PlannedSlice> out;
  for (const Parameter& parameter : stage.parameters) {
    const View view = parameter.spec.placement.view;
    const std::vector<int> peers = layout_.grid(view).peers(rank, layout_.sum_axes(parameter.spec));
    const std::int64_t part = std::ranges::find(peers, rank) - peers.begin();
    const Range rows = rows_of_part(parameter, stage.elements.at(view), part, std::ssize(peers));
    if (rows.begin >= rows.end) continue;
    const std::vector<Piece> pieces = layout_.pieces(parameter.spec, rank);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (saver_of(parameter.name, layout_.holders(parameter.spec, rank, i)) != rank) continue;
      Box box = box_of(pieces[i].slices.global_slices);
      const Range local = box_of(pieces[i].slices.local_slices).front();
      const Range mine{std::max(local.begin, rows.begin), std::min(local.end, rows.end)};
      if (mine.begin >= mine.end) continue;
      const std::int64_t shift = box.front().begin - local.begin;
      box.front() = {mine.begin + shift, mine.end + shift};
      for (const StoredTensor* tensor : parameter.tensors) add_slice(*tensor, box, out);
    }
  }
  if (const auto random = random_.find(rank); random != random_.end()) {
    const Shape& shape = random->second->shape;
    if (numel(shape) > 0) add_slice(*random->second, whole_box(shape), out);
  }
  return out;
}

}  // namespace trireme::checkpoint
