#include "trireme/parallel/zero/grad_norm.hpp"

#include <algorithm>
#include <cmath>

#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "trireme/base/error.hpp"
#include "trireme/kernels/optimizer/block_squares.hpp"

namespace trireme {
namespace {

static_assert(kernels::kSquaresBlock == kFlatBlock);

/// The ranges of a rank's flattened tensor that this rank counts: the pieces of which it is the first holder.
std::vector<Range> counted(const Param& param, const ParamMesh& mesh) {
  const std::vector<Piece> own = mesh.pieces(param.spec);
  const at::IntArrayRef sizes = param.value.sizes();
  std::vector<Range> out;
  if (param.spec.is_tied_copy) return out;
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (!mesh.is_first_holder(param.spec, i)) continue;
    // Rows of the box that are contiguous in memory form one range.
    const Box box = box_of(own[i].slices.local_slices);
    std::size_t inner = box.size();
    std::int64_t run = 1;
    while (inner > 0) {
      run *= box[--inner].size();
      if (box[inner].size() != sizes[static_cast<std::int64_t>(inner)]) break;
    }
    // Outer dims: one range per combination of their indices.
    std::int64_t runs = 1;
    for (std::size_t d = 0; d < inner; ++d) runs *= box[d].size();
    for (std::int64_t r = 0; r < runs; ++r) {
      std::int64_t rest = r, begin = 0, step = 1;
      for (std::size_t d = box.size(); d-- > 0;) {
        std::int64_t index = box[d].begin;
        if (d < inner) {
          index += rest % box[d].size();
          rest /= box[d].size();
        }
        begin += index * step;
        step *= sizes[static_cast<std::int64_t>(d)];
      }
      if (run > 0) out.push_back({begin, begin + run});
    }
  }
  std::ranges::sort(out, {}, &Range::begin);
  return out;
}

}  // namespace

GradNorm::GradNorm(const Partition& partition)
    : partition_(partition), has_all_blocks_(partition.shards().options().deterministic) {
  std::int64_t blocks = 0;
  std::vector<std::vector<Range>> ranges;
  for (const Param& param : partition.params()) {
    first_block_.push_back(blocks);
    blocks += (param.value.numel() + kFlatBlock - 1) / kFlatBlock;
    ranges.push_back(counted(param, partition.mesh()));
  }
  first_block_.push_back(blocks);
  for (std::size_t b = 0; b < partition.num_buckets(); ++b)
    for (const FlatPiece& piece : partition.own_pieces(b))
      for (const Range& range : ranges[piece.item]) {
        const Range both{std::max(range.begin, piece.of_item.begin), std::min(range.end, piece.of_item.end)};
        if (both.begin >= both.end) continue;
        runs_.push_back({b, piece.offset + both.begin - piece.of_item.begin, both.size(),
                         first_block_[piece.item] + both.begin / kFlatBlock, both.begin % kFlatBlock});
      }
  if (!has_all_blocks_) number_own_blocks();
}

/// Only the blocks of this rank's shards: their indices among all blocks become indices among those.
void GradNorm::number_own_blocks() {
  std::int64_t last = -1;  // among all blocks
  for (Run& run : runs_) {
    const std::int64_t first = run.block, end = first + (run.phase + run.numel + kFlatBlock - 1) / kFlatBlock;
    const bool continues = first == last;  // the block that the run before ends in
    run.block = static_cast<std::int64_t>(item_of_block_.size()) - (continues ? 1 : 0);
    const auto item =
        static_cast<std::size_t>(std::ranges::upper_bound(first_block_, first) - first_block_.begin()) - 1;
    item_of_block_.resize(static_cast<std::size_t>(run.block + end - first), item);
    last = end - 1;
  }
}

at::Tensor GradNorm::sum_of_squares(const GradReducer& gradients) {
  const at::NoGradGuard no_grad;
  const auto num_blocks = has_all_blocks_ ? first_block_.back()
                                          : std::max<std::int64_t>(1, static_cast<std::int64_t>(item_of_block_.size()));
  blocks_ = at::zeros({num_blocks}, partition_.tensor_options().dtype(at::kDouble));
  std::vector<kernels::SquaresRun> runs;
  for (const Run& run : runs_)
    runs.push_back({gradients.shard(run.bucket).narrow(0, run.offset, run.numel), run.phase, run.block});
  kernels::add_block_squares(runs, blocks_);
  // Every block has exactly one owner among the shards, so this sum is exact.
  if (has_all_blocks_) blocks_ = partition_.shards().all_reduce_(blocks_).wait();
  at::Tensor own = kernels::sum_in_order(blocks_).view({1});
  if (!has_all_blocks_) own = partition_.shards().all_reduce(own).wait();
  return partition_.mesh().model_group(partition_.params()[0].spec).all_reduce(own).wait();
}

std::vector<std::string> GradNorm::not_finite() const {
  const at::Tensor is_bad = blocks_.isfinite().logical_not().cpu();
  const auto* bad = is_bad.const_data_ptr<bool>();
  at::Tensor bad_items = at::zeros({static_cast<std::int64_t>(partition_.params().size())}, at::kDouble);
  for (std::size_t i = 0; has_all_blocks_ && i + 1 < first_block_.size(); ++i)
    if (std::any_of(bad + first_block_[i], bad + first_block_[i + 1], [](bool each) { return each; }))
      bad_items[static_cast<std::int64_t>(i)] = 1;
  for (std::size_t b = 0; b < item_of_block_.size(); ++b)
    if (bad[b]) bad_items[static_cast<std::int64_t>(item_of_block_[b])] = 1;
  bad_items = partition_.shards().all_reduce(bad_items.to(blocks_.device())).wait().cpu();
  std::vector<std::string> names;
  for (std::size_t i = 0; i < partition_.params().size(); ++i)
    if (bad_items[static_cast<std::int64_t>(i)].item<double>() > 0) names.push_back(partition_.params()[i].name);
  return names;
}

at::Tensor update_factor(const at::Tensor& norm, double max_norm, double loss_scale, double skip_above) {
  const at::Tensor real_norm = norm / loss_scale;
  // inf - inf and nan - nan are NaN, and remain NaN when multiplied.
  const at::Tensor zero_or_nan = norm - norm;
  at::Tensor factor = at::ones_like(norm);
  if (max_norm > 0) factor = (max_norm / (real_norm + 1e-6)).clamp_max(1.0);
  factor = factor / loss_scale + zero_or_nan;
  return std::isfinite(skip_above) ? factor.masked_fill(real_norm > skip_above, std::nan("")) : factor;
}

}  // namespace trireme
