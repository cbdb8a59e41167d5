#include "trireme/train/save/nanotron_files.hpp"

#include <algorithm>
#include <exception>

#include <nlohmann/json.hpp>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/format/manifest_parts.hpp"
#include "trireme/checkpoint/sources/nanotron_format.hpp"
#include "trireme/comm/time_limit.hpp"
#include "trireme/files/safetensors_write.hpp"
#include "trireme/parallel/state/file_dtypes.hpp"
#include "trireme/parallel/zero/collective_state_dict.hpp"
#include "trireme/train/save/pt_file.hpp"

namespace trireme {
namespace {

/// "tp-0-of-2_dp-1-of-4_pp-0-of-1". Ranks along cp have states of their own, as those along dp.
std::string nanotron_place(const Grid& grid, int rank) {
  const int cp = grid.degree(Axis::cp);
  return text("tp-", grid.coord(rank, Axis::tp), "-of-", grid.degree(Axis::tp), "_dp-",
              grid.coord(rank, Axis::dp) * cp + grid.coord(rank, Axis::cp), "-of-", grid.degree(Axis::dp) * cp, "_pp-",
              grid.coord(rank, Axis::pp), "-of-", grid.degree(Axis::pp));
}

/// {"step": ..., "state": {parameter: {kind: {slices: tensor}}}, "unsharded_shape": {parameter: "(96, 32)"}}
void write_optimizer(const std::vector<SavedPart>& parts, std::int64_t steps, checkpoint::ShardWriter& writer,
                     HostCopies& host) {
  PtContents contents;
  PtContents::Dict all = PtContents::dict(), state = PtContents::dict(), shapes = PtContents::dict();
  const auto inner = [](PtContents::Dict& outer, const std::string& key) {
    if (!outer.contains(key)) outer.insert(key, PtContents::dict());
    return outer.at(key).toGenericDict();
  };
  for (const SavedPart& part : parts) {
    PtContents::Dict of_param = inner(state, part.plan.name), of_kind = inner(of_param, part.plan.kind);
    of_kind.insert(str(slices_of(part.plan.box)), contents.placeholder(part));
    shapes.insert_or_assign(part.plan.name, tuple_text(part.plan.shape));
  }
  all.insert("step", steps);
  all.insert("state", state);
  all.insert("unsharded_shape", shapes);
  contents.write(all, writer, host);
}

/// The parts of a parameter that a tensor-parallel rank writes: those that no rank before it holds too.
std::vector<Box> boxes_of_rank(const ParamLayout& layout, const ParamSpec& spec, int rank) {
  std::vector<Box> out;
  const std::vector<Piece> pieces = layout.pieces(spec, rank);
  for (std::size_t i = 0; i < pieces.size(); ++i)
    if (layout.is_first_holder(spec, rank, i)) out.push_back(box_of(pieces[i].slices.global_slices));
  return out;
}

/// The boxes one below the other, as one tensor.
struct StackedBoxes {
  Shape shape{};
  std::vector<SlicesPair> pairs{};
};
StackedBoxes stacked(const std::vector<Box>& boxes, const std::string& name) {
  StackedBoxes out;
  for (const Range& side : boxes.at(0)) out.shape.push_back(side.size());
  std::int64_t rows = 0;
  for (const Box& box : boxes) {
    Box local = box;
    for (std::size_t d = 0; d < box.size(); ++d) {
      require(d == 0 || box[d].size() == out.shape[d], name, ": its parts ", str(box), " and ", str(boxes[0]),
              " have different widths");
      local[d] = {0, box[d].size()};
    }
    if (!box.empty()) {
      local[0] = {rows, rows + box[0].size()};
      rows = out.shape[0] = local[0].end;
    }
    out.pairs.push_back({slices_of(local), slices_of(box)});
  }
  return out;
}

/// Writes the files of one parameter.
class ModelFileWriter {
 public:
  ModelFileWriter(files::Fs& fs, checkpoint::BlockPool& pool, const checkpoint::SaveTarget& target)
      : fs_(fs), pool_(pool), target_(target) {}

  void write(const Param& param, const at::Tensor& full, const ParamLayout& layout) {
    const Grid& grid = layout.grid(View::dense);
    const int tp = grid.degree(Axis::tp);
    std::vector<std::vector<Box>> by_rank;
    for (int t = 0; t < tp; ++t)
      by_rank.push_back(boxes_of_rank(layout, param.spec, grid.rank_at({{Axis::tp, t}})));  // the same in each stage
    const auto writers = std::ranges::count_if(by_rank, [](const std::vector<Box>& boxes) { return !boxes.empty(); });
    for (int t = 0; t < tp; ++t)
      if (!by_rank[static_cast<std::size_t>(t)].empty())
        write_file(param, full, by_rank[static_cast<std::size_t>(t)],
                   {.parameter = {}, .is_shard = writers > 1, .tp_rank = t, .tp = tp});
  }

  const checkpoint::Manifest& written() const { return written_; }

 private:
  void write_file(const Param& param, const at::Tensor& full, const std::vector<Box>& boxes,
                  checkpoint::NanotronFile file) {
    std::string folder = "model/" + param.name;
    const std::size_t dot = folder.rfind('.');
    file.parameter = dot == std::string::npos ? param.name : folder.substr(dot + 1);
    folder = dot == std::string::npos ? "model" : folder.substr(0, dot);
    std::ranges::replace(folder, '.', '/');
    const StackedBoxes all = stacked(boxes, param.name);
    const files::SafetensorsDtype dtype = file_dtype(full.scalar_type());
    checkpoint::ShardWriter writer(fs_, pool_, target_, text(folder, "/", checkpoint::file_name(file)));
    const std::string header =
        files::safetensors_header(std::vector<files::SafetensorsTensor>{{"data", dtype, all.shape}},
                                  {{"version", checkpoint::kNanotronVersion},
                                   {"local_global_slices_pairs", str(all.pairs)},
                                   {"unsharded_shape", tuple_text(param.spec.shape)}},
                                  param.name);
    writer.append(std::as_bytes(std::span(header)));
    const auto most = static_cast<std::int64_t>(checkpoint::kMaxSliceBytes / full.element_size());
    for (const Box& box : boxes)
      for (const Box& part : checkpoint::split_box(box, most)) {
        const at::Tensor values = box_view(full, part).cpu().contiguous();
        writer.append({param.name, checkpoint::kModel, dtype, param.spec.shape, part}, bytes_of(values));
      }
    writer.end();
    checkpoint::add_file(written_, writer.finish());
  }

  files::Fs& fs_;
  checkpoint::BlockPool& pool_;
  const checkpoint::SaveTarget& target_;
  checkpoint::Manifest written_{};
};

}  // namespace

std::vector<RankFile> nanotron_rank_files(const Mesh& mesh, std::vector<SavedPart> parts, std::vector<SavedPart> own,
                                          std::int64_t optimizer_steps, const LrState& lr) {
  const std::string place = nanotron_place(mesh.grid(), mesh.rank());
  std::vector<RankFile> out;
  out.push_back({text("optimizer/optimizer_", place, ".pt"),
                 [parts = std::move(parts), optimizer_steps](checkpoint::ShardWriter& writer, HostCopies& host) {
                   write_optimizer(parts, optimizer_steps, writer, host);
                 }});
  out.push_back(
      {text("lr_scheduler/lr_scheduler_", place, ".pt"), [lr](checkpoint::ShardWriter& writer, HostCopies& host) {
         PtContents::Dict all = PtContents::dict();
         all.insert("last_step", lr.last_step);
         all.insert("last_lr", lr.last_lr);
         all.insert("base_lr", lr.base_lr);
         PtContents().write(all, writer, host);
       }});
  out.push_back(
      {text("random/", place, ".pt"), [own = std::move(own)](checkpoint::ShardWriter& writer, HostCopies& host) {
         PtContents contents;
         PtContents::Dict all = PtContents::dict();
         for (const SavedPart& part : own) all.insert(part.plan.kind, contents.placeholder(part));
         contents.write(all, writer, host);
       }});
  return out;
}

checkpoint::Manifest write_nanotron_model(Zero& zero, Mesh& mesh, files::Fs& fs, checkpoint::BlockPool& pool,
                                          const checkpoint::SaveTarget& target) {
  ModelFileWriter writer(fs, pool, target);
  // A rank that writes to a slow disk is waited for in the next gathering, or at the end.
  const TimeLimit limit(mesh.world(),
                        std::max(mesh.world().options().init_timeout_s, mesh.world().options().timeout_s));
  std::exception_ptr failure;
  // The ranks of a pipeline stage take turns.
  std::vector<int> ranks;
  for (int rank = 0; rank < mesh.world().size(); ++rank)
    if (mesh.grid().coord(rank, Axis::pp) == mesh.coord(Axis::pp)) ranks.push_back(rank);
  std::size_t turn = 0;
  for_each_full_param_of_stage(zero, [&](const Param& param, const at::Tensor& full) {
    if (ranks[turn++ % ranks.size()] != mesh.rank() || failure) return;
    try {
      writer.write(param, full, mesh.params());
    } catch (const std::exception&) {
      failure = std::current_exception();
    }
  });
  mesh.world().control().barrier().wait();
  if (failure) std::rethrow_exception(failure);
  return writer.written();
}

std::pair<std::string, std::string> nanotron_optimizer_config(const OptimizerConfig& optimizer, const Grid& grid) {
  const nlohmann::ordered_json json = {{"type", optimizer.name},
                                       {"parallelizer",
                                        {{"tp_size", grid.degree(Axis::tp)},
                                         {"dp_size", grid.degree(Axis::dp) * grid.degree(Axis::cp)},
                                         {"pp_size", grid.degree(Axis::pp)}}},
                                       {"configs",
                                        {{"lr", optimizer.lr},
                                         {"betas", optimizer.betas},
                                         {"eps", optimizer.eps},
                                         {"weight_decay", optimizer.weight_decay},
                                         {"no_decay", optimizer.no_decay},
                                         {"momentum", optimizer.momentum},
                                         {"nesterov", optimizer.nesterov}}}};
  return {"optimizer/optimizer_config.json", json.dump(2) + "\n"};
}

}  // namespace trireme
