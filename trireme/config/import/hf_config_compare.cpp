#include "trireme/config/import/hf_config_compare.hpp"

#include <set>
#include <system_error>

#include "trireme/base/error.hpp"
#include "trireme/config/read/derive.hpp"
#include "trireme/config/read/parse.hpp"
#include "trireme/config/schema/choices.hpp"
#include "trireme/config/schema/family.hpp"
#include "trireme/config/schema/fields.hpp"

namespace trireme::config {
namespace {

/// What a run may choose without computing something else from the same weights.
const std::set<std::string>& free_keys() {
  static const std::set<std::string> keys = {
      "model.preset",
      "model.hf",
      "model.init",
      "model.dtype",
      "model.embd_pdrop",
      "model.resid_pdrop",
      "model.attention_dropout",
      "model.initializer_range",
      "model.router_aux_loss_coef",
      "model.router_aux_loss_type",
      "model.router_aux_loss_samples",
      "model.router_z_loss_coef",
  };
  return keys;
}

/// Equal for two models that compute the same: without derived values, and without keys that their RoPE does not read.
Config comparable(const ModelConfig& model) {
  LoadedConfig loaded;
  loaded.config.model = model;
  derive(loaded);
  ModelConfig& m = loaded.config.model;
  const RopeKind kind = parse_rope_kind(m.rope_scaling.rope_type);
  const bool has_rope = family_of(m).positions == PositionKind::rope;
  if (kind == RopeKind::llama3 || kind == RopeKind::yarn)
    m.rope_scaling.original_max_position_embeddings = rope_original_length(m);
  if (kind == RopeKind::plain) m.rope_scaling = {};
  if (has_rope && kind != RopeKind::dynamic) m.max_position_embeddings = 0;  // a limit, and not used
  if (m.num_local_experts == 0) m.num_experts_per_tok = m.moe_intermediate_size = 0;
  return loaded.config;
}

}  // namespace

std::vector<std::string> hf_config_differences(const std::filesystem::path& folder, const ModelConfig& model) {
  std::error_code ignored;
  if (!std::filesystem::exists(folder / "config.json", ignored)) return {};
  const LoadedConfig loaded = load_settings("", "", {{"model.hf", {folder.string()}, {}}}, {});
  if (!loaded.violations.empty()) {
    const std::string& why = loaded.violations.front().headline;
    return {why.substr(0, why.find('\n'))};
  }
  Config theirs = comparable(loaded.config.model), ours = comparable(model);
  const std::vector<Field> a = fields(theirs), b = fields(ours);
  std::vector<std::string> out;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const std::string value = toml_text(a[i].value), of_run = toml_text(b[i].value);
    if (a[i].key.starts_with("model.") && !free_keys().contains(a[i].key) && value != of_run)
      out.push_back(text(a[i].key.substr(std::string("model.").size()), " = ", value, " (the run's: ", of_run, ")"));
  }
  return out;
}

}  // namespace trireme::config
