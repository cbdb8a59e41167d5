#include "trireme/model/hugging_face.hpp"

#include <ATen/ops/empty.h>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/sources/hf_source.hpp"
#include "trireme/config/import/hf_config_compare.hpp"
#include "trireme/layout/box_copy.hpp"

namespace trireme {
namespace {

at::ScalarType scalar_type(files::SafetensorsDtype dtype) {
  switch (dtype) {
    case files::SafetensorsDtype::F64: return at::kDouble;
    case files::SafetensorsDtype::F32: return at::kFloat;
    case files::SafetensorsDtype::F16: return at::kHalf;
    case files::SafetensorsDtype::BF16: return at::kBFloat16;
    default: throw InternalError(text("weights of dtype ", name(dtype)));  // HfWeights refuses them
  }
}

/// Reads the part of a box of our parameter that `name` holds.
void read_box(const WeightName& name, const files::SafetensorsFolder::Found& found, const Box& global,
              at::Tensor into) {
  const std::optional<WeightPart> part = part_of_weight(name, global);
  if (!part) return;
  into = box_view(into, relative_to(part->ours, global));
  if (name.expert >= 0) into = into.squeeze(0);

  std::vector<std::int64_t> starts, sizes;
  for (const Range& range : part->theirs) {
    starts.push_back(range.begin);
    sizes.push_back(range.size());
  }
  const at::Tensor slice = at::empty(sizes, scalar_type(found.entry.dtype));
  found.file.read(found.entry, starts, sizes, {static_cast<std::byte*>(slice.data_ptr()), slice.nbytes()});
  into.copy_(name.transposed ? slice.t() : slice);
}

}  // namespace

struct HuggingFaceWeights::Plan {
  Plan(const std::filesystem::path& path, const ModelConfig& model) : weights(path, model), note(weights.note()) {}
  checkpoint::HfWeights weights;
  std::string note;
};

HuggingFaceWeights::HuggingFaceWeights(const Decoder& decoder, const std::filesystem::path& path)
    : HuggingFaceWeights(decoder.config(), params_of(decoder), path) {}

HuggingFaceWeights::HuggingFaceWeights(const ModelConfig& model, const std::vector<Param>& params,
                                       const std::filesystem::path& path)
    : plan_(std::make_unique<Plan>(path, model)) {
  const std::string& shown = plan_->weights.shown();
  for (const Param& param : params)
    require<CheckpointError>(plan_->weights.has(param.name), shown, ": ", param.name,
                             " of this config has no name in a ", model.model_type, " folder",
                             "\n  fix: take model settings from the folder's own config.json (model.hf)");
  std::string differences;
  for (const std::string& difference : config::hf_config_differences(path, model))
    differences += text(differences.empty() ? shown + ": config.json has " : ", ", difference);
  plan_->note = differences + (differences.empty() || plan_->note.empty() ? "" : "; ") + plan_->note;
}

const std::string& HuggingFaceWeights::note() const { return plan_->note; }

HuggingFaceWeights::~HuggingFaceWeights() = default;

ParamValues HuggingFaceWeights::values(const ParamMesh& mesh) const {
  return [this, mesh](const Param& param, Range range, const at::Tensor& out) {
    read_by_boxes(param, mesh, range, out, [&](const Box& global, at::Tensor into) {
      for (const checkpoint::HfPart& part : plan_->weights.parts(param.name))
        read_box(part.name, part.found, global, into);
    });
  };
}

void load_hugging_face(Decoder& decoder, const std::filesystem::path& path, const ParamMesh& mesh) {
  set_paths(decoder);
  const HuggingFaceWeights weights(decoder, path);
  fill_params(params_of(decoder), weights.values(mesh));
}

at::Tensor their_tensor(const WeightName& name, const at::Tensor& ours) {
  const at::Tensor rows = (name.expert >= 0 ? ours[name.expert] : ours).narrow(0, name.first_row, name.rows);
  return name.transposed ? rows.t() : rows;
}

}  // namespace trireme
