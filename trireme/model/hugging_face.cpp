#include "trireme/model/hugging_face.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <ATen/ops/empty.h>

#include "trireme/base/error.hpp"
#include "trireme/config/foreign/hf_config_compare.hpp"
#include "trireme/files/safetensors_folder.hpp"

namespace trireme {
namespace {

at::ScalarType scalar_type(const files::SafetensorsEntry& entry, const std::string& file) {
  switch (entry.dtype) {
    case files::SafetensorsDtype::F64: return at::kDouble;
    case files::SafetensorsDtype::F32: return at::kFloat;
    case files::SafetensorsDtype::F16: return at::kHalf;
    case files::SafetensorsDtype::BF16: return at::kBFloat16;
    default:  // integers, and quantized formats
      throw CheckpointError(text(file, ": tensor ", entry.name, " is of dtype ", name(entry.dtype),
                                 ": weights must be F64, F32, F16 or BF16\n  fix: a folder that is not quantised"));
  }
}

/// Non-weight tensors that the files may contain: constants that old versions of transformers wrote.
bool is_constant(std::string_view name) {
  for (const char* end : {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"})
    if (name.ends_with(end)) return true;
  return false;
}

/// The tensors in the files by the names in the tables: GPT-2's original files omit the prefix "transformer.".
class Source {
 public:
  explicit Source(const std::filesystem::path& path) : folder_(path) {}

  std::optional<files::SafetensorsFolder::Found> find(const std::string& name) {
    for (const std::string& candidate : {name, name.substr(name.find('.') + 1)})
      if (auto found = folder_.find(candidate)) {
        used_.insert(candidate);
        return found;
      }
    return std::nullopt;
  }
  std::vector<std::string> unused() const {
    std::vector<std::string> names;
    for (const std::string_view name : folder_.names())
      if (!used_.contains(name) && !is_constant(name)) names.emplace_back(name);
    return names;
  }
  const std::string& shown() const { return folder_.shown(); }

 private:
  files::SafetensorsFolder folder_;
  std::set<std::string, std::less<>> used_;
};

/// The first few of the lines, for an error message.
std::string listed(const std::vector<std::string>& lines) {
  std::string out;
  for (std::size_t i = 0; i < lines.size() && i < 5; ++i) out += "\n  " + lines[i];
  if (lines.size() > 5) out += text("\n  and ", lines.size() - 5, " more");
  return out;
}

Shape their_shape(const WeightName& name, const ParamSpec& ours) {
  Shape shape = ours.shape;
  shape[0] = name.rows;
  if (name.transposed) std::swap(shape[0], shape[1]);
  return shape;
}

/// Reads the rows of a box of our parameter that `name` holds.
void read_box(const WeightName& name, const files::SafetensorsFolder::Found& found, Box global, at::Tensor into) {
  const Range rows{std::max(global[0].begin, name.first_row), std::min(global[0].end, name.first_row + name.rows)};
  if (rows.begin >= rows.end) return;
  into = into.narrow(0, rows.begin - global[0].begin, rows.size());
  global[0] = {rows.begin - name.first_row, rows.end - name.first_row};
  if (name.transposed) std::swap(global[0], global[1]);

  std::vector<std::int64_t> starts, sizes;
  for (const Range& range : global) {
    starts.push_back(range.begin);
    sizes.push_back(range.size());
  }
  const at::Tensor slice = at::empty(sizes, scalar_type(found.entry, found.file.shown()));
  found.file.read(found.entry, starts, sizes, {static_cast<std::byte*>(slice.data_ptr()), slice.nbytes()});
  into.copy_(name.transposed ? slice.t() : slice);
}

using Params = std::map<std::string, Param>;  // by name

struct Read {
  WeightName name;
  files::SafetensorsFolder::Found found;
};

/// The tensors to read, or CheckpointError that lists everything wrong.
std::vector<Read> plan_reads(const ModelConfig& model, const Params& params, Source& source) {
  std::vector<Read> reads;
  std::vector<std::string> wrong;
  std::map<std::string, std::int64_t> named_rows;
  for (const WeightName& name : weight_names(model)) {
    const auto param = params.find(name.ours);
    require(param != params.end(), "the table of names has ", name.ours, ", the model has not");
    named_rows[name.ours] += name.rows;
    const auto found = source.find(name.theirs);
    if (!found) {
      wrong.push_back(text(name.theirs, " is missing"));
      continue;
    }
    const Shape wanted = their_shape(name, param->second.spec);
    if (found->entry.shape == wanted)
      reads.push_back({name, *found});
    else
      wrong.push_back(
          text(name.theirs, " has shape ", tuple_text(found->entry.shape), ", the model's is ", tuple_text(wanted)));
  }
  for (const auto& [name, param] : params)
    if (named_rows[name] != param.spec.shape[0])
      wrong.push_back(text(name, " of this config has no name in a ", model.model_type, " folder"));
  for (const std::string& name : source.unused())
    if (!(model.tie_word_embeddings && name == "lm_head.weight"))
      wrong.push_back(text(name, " has no place in a ", model.model_type, " model of this config"));
  require<CheckpointError>(wrong.empty(), source.shown(), ": ", wrong.size(),
                           wrong.size() == 1 ? " tensor does" : " tensors do", " not fit the model", listed(wrong),
                           "\n  fix: take model settings from the folder's own config.json (model.hf)");
  return reads;
}

}  // namespace

struct HuggingFaceWeights::Plan {
  explicit Plan(const std::filesystem::path& path) : source(path) {}
  Source source;
  std::map<std::string, std::vector<Read>> reads;  // by our name
  std::string note;
};

HuggingFaceWeights::HuggingFaceWeights(const Decoder& decoder, const std::filesystem::path& path)
    : plan_(std::make_unique<Plan>(path)) {
  Params params;
  for (Param& param : params_of(decoder)) params.emplace(param.name, std::move(param));
  for (Read& read : plan_reads(decoder.config(), params, plan_->source))
    plan_->reads[read.name.ours].push_back(std::move(read));
  for (const std::string& difference : config::hf_config_differences(path, decoder.config()))
    plan_->note += text(plan_->note.empty() ? plan_->source.shown() + ": config.json has " : ", ", difference);
  if (!decoder.config().tie_word_embeddings) return;
  const auto head = plan_->source.find("lm_head.weight");
  const std::vector<Read>& embedding = plan_->reads.at("embedding.weight");
  if (head &&
      !std::ranges::equal(head->file.bytes(head->entry), embedding[0].found.file.bytes(embedding[0].found.entry)))
    plan_->note += text(plan_->note.empty() ? "" : "; ", plan_->source.shown(),
                        ": lm_head.weight differs from the embedding and is not used, because ",
                        "model.tie_word_embeddings = true");
}

const std::string& HuggingFaceWeights::note() const { return plan_->note; }

HuggingFaceWeights::~HuggingFaceWeights() = default;

ParamValues HuggingFaceWeights::values(const ParamMesh& mesh) const {
  return [this, mesh](const Param& param, Range range, const at::Tensor& out) {
    read_by_boxes(param, mesh, range, out, [&](const Box& global, at::Tensor into) {
      for (const Read& read : plan_->reads.at(param.name)) read_box(read.name, read.found, global, into);
    });
  };
}

void load_hugging_face(Decoder& decoder, const std::filesystem::path& path, const ParamMesh& mesh) {
  set_paths(decoder);
  const HuggingFaceWeights weights(decoder, path);
  fill_params(params_of(decoder), weights.values(mesh));
}

at::Tensor their_tensor(const WeightName& name, const at::Tensor& ours) {
  const at::Tensor rows = ours.narrow(0, name.first_row, name.rows);
  return name.transposed ? rows.t() : rows;
}

}  // namespace trireme
