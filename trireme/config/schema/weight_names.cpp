#include "trireme/config/schema/weight_names.hpp"

#include "trireme/base/error.hpp"
#include "trireme/config/schema/family.hpp"

namespace trireme {
namespace {

class WeightTable {
 public:
  /// One to one.
  void add(const std::string& ours, const std::string& theirs, std::int64_t rows, bool transposed = false) {
    names_.push_back({ours, theirs, 0, rows, transposed});
  }
  struct Part {
    std::string theirs;
    std::int64_t rows;
  };
  /// Ours is the concatenation of their tensors along the rows.
  void add_fused(const std::string& ours, const std::vector<Part>& parts) {
    std::int64_t first = 0;
    for (const Part& part : parts) {
      names_.push_back({ours, part.theirs, first, part.rows, false});
      first += part.rows;
    }
  }
  std::vector<WeightName> take() { return std::move(names_); }

 private:
  std::vector<WeightName> names_;
};

std::vector<WeightName> gpt2_names(const ModelConfig& m) {
  WeightTable table;
  const std::int64_t h = m.hidden_size, f = m.intermediate_size;
  table.add("embedding.weight", "transformer.wte.weight", m.vocab_size);
  table.add("positions.weight", "transformer.wpe.weight", m.max_position_embeddings);
  for (std::int64_t i = 0; i < m.num_hidden_layers; ++i) {
    const std::string ours = text("layers.", i, "."), theirs = text("transformer.h.", i, ".");
    for (const char* what : {"weight", "bias"}) {
      const std::string w = what;
      const bool matrix = w == "weight";
      table.add(ours + "attention_norm." + w, theirs + "ln_1." + w, h);
      table.add(ours + "attention.qkv." + w, theirs + "attn.c_attn." + w, 3 * h, matrix);
      table.add(ours + "attention.out." + w, theirs + "attn.c_proj." + w, h, matrix);
      table.add(ours + "mlp_norm." + w, theirs + "ln_2." + w, h);
      table.add(ours + "mlp.up." + w, theirs + "mlp.c_fc." + w, f, matrix);
      table.add(ours + "mlp.down." + w, theirs + "mlp.c_proj." + w, h, matrix);
    }
  }
  table.add("norm.weight", "transformer.ln_f.weight", h);
  table.add("norm.bias", "transformer.ln_f.bias", h);
  if (!m.tie_word_embeddings) table.add("head.weight", "lm_head.weight", m.vocab_size);
  return table.take();
}

/// Llama, Mistral, Qwen2, Qwen3: they differ in biases and in the norms of q and k.
std::vector<WeightName> llama_names(const ModelConfig& m) {
  WeightTable table;
  const std::int64_t h = m.hidden_size, d = m.head_dim, f = m.intermediate_size;
  const std::int64_t q = m.num_attention_heads * d, kv = m.num_key_value_heads * d;
  table.add("embedding.weight", "model.embed_tokens.weight", m.vocab_size);
  for (std::int64_t i = 0; i < m.num_hidden_layers; ++i) {
    const std::string ours = text("layers.", i, "."), theirs = text("model.layers.", i, ".");
    const auto add_qkv = [&](const std::string& what) {
      table.add_fused(ours + "attention.qkv." + what, {{theirs + "self_attn.q_proj." + what, q},
                                                       {theirs + "self_attn.k_proj." + what, kv},
                                                       {theirs + "self_attn.v_proj." + what, kv}});
    };
    table.add(ours + "attention_norm.weight", theirs + "input_layernorm.weight", h);
    add_qkv("weight");
    if (config::has_qkv_bias(m)) add_qkv("bias");
    table.add(ours + "attention.out.weight", theirs + "self_attn.o_proj.weight", h);
    if (config::has_out_bias(m)) table.add(ours + "attention.out.bias", theirs + "self_attn.o_proj.bias", h);
    if (m.qk_norm) {
      table.add(ours + "attention.q_norm.weight", theirs + "self_attn.q_norm.weight", d);
      table.add(ours + "attention.k_norm.weight", theirs + "self_attn.k_norm.weight", d);
    }
    table.add(ours + "mlp_norm.weight", theirs + "post_attention_layernorm.weight", h);
    table.add_fused(ours + "mlp.gate_up.weight",
                    {{theirs + "mlp.gate_proj.weight", f}, {theirs + "mlp.up_proj.weight", f}});
    table.add(ours + "mlp.down.weight", theirs + "mlp.down_proj.weight", h);
  }
  table.add("norm.weight", "model.norm.weight", h);
  if (!m.tie_word_embeddings) table.add("head.weight", "lm_head.weight", m.vocab_size);
  return table.take();
}

}  // namespace

std::vector<WeightName> weight_names(const ModelConfig& model) {
  const config::FamilyInfo* family = config::find_family(model.model_type);
  require<ConfigError>(family != nullptr && family->has_decoder, "model_type = \"", model.model_type,
                       "\": there is no table of its weights' names; there is one for ", config::names_with_decoder());
  return family->hf.names == config::HfNames::gpt2 ? gpt2_names(model) : llama_names(model);
}

std::vector<ParameterShape> parameter_shapes(const ModelConfig& model) {
  std::vector<ParameterShape> parameters;
  for (const WeightName& weight : weight_names(model)) {
    if (weight.first_row == 0) parameters.push_back({weight.ours, {0}});
    parameters.back().shape[0] += weight.rows;
  }
  for (auto& [name, shape] : parameters) {
    if (name.ends_with(".bias") || name.ends_with("norm.weight")) continue;
    const bool from_heads = name.ends_with(".attention.out.weight"), from_mlp = name.ends_with(".mlp.down.weight");
    shape.push_back(from_heads ? model.num_attention_heads * model.head_dim
                    : from_mlp ? model.intermediate_size
                               : model.hidden_size);
  }
  return parameters;
}

std::vector<std::string> parameter_names(const ModelConfig& model) {
  std::vector<std::string> names;
  for (const WeightName& weight : weight_names(model))
    if (weight.first_row == 0) names.push_back(weight.ours);
  return names;
}

}  // namespace trireme
