#include "trireme/base/human.hpp"
#include "trireme/config/rules/rules.hpp"
#include "trireme/config/schema/choices.hpp"
#include "trireme/config/schema/family.hpp"
#include "trireme/data/tokenizer/tokenizer.hpp"
#include "trireme/describe/counts.hpp"

namespace trireme::config {
namespace {

/// Without vocab_size it is that of the tokenizer, which then could not be read (derive.cpp).
void explain_missing_vocabulary(Rules& rules) {
  try {
    data::Tokenizer::load(rules.config.tokenizer.path);
  } catch (const Error& e) {
    rules.violation("tokenizer.path",
                    text("model.vocab_size is not given, and the tokenizer cannot be read: ", e.what()), "",
                    "set model.vocab_size, or another tokenizer.path");
  }
}

bool check_sizes(Rules& rules) {
  const ModelConfig& m = rules.config.model;
  const std::vector<std::pair<const char*, std::int64_t>> sizes = {{"hidden_size", m.hidden_size},
                                                                   {"num_hidden_layers", m.num_hidden_layers},
                                                                   {"num_attention_heads", m.num_attention_heads},
                                                                   {"intermediate_size", m.intermediate_size},
                                                                   {"vocab_size", m.vocab_size}};
  const std::string& init = rules.config.model.init;
  if (std::ranges::all_of(sizes, [](const auto& s) { return s.second == 0; })) {
    if (rules.loaded.model_was_refused) return false;  // that error is there already
    if (!m.hf.empty()) {
      rules.violation("model.hf", text("the config.json of model.hf = \"", shortened(m.hf), "\" has no sizes"), "",
                      "the config.json of a model, with its hidden_size, num_hidden_layers and so on");
      return false;
    }
    if (init.starts_with("hf:")) {
      rules.violation("model.init",
                      text("model.init = \"", shortened(init), "\" has no config.json to take the model from"), "",
                      "a folder with a config.json, or set model.preset or the sizes");
      return false;
    }
    rules.violation_at(rules.place_of_table("model"), "no model: [model] has no preset, no hf and no sizes", "",
                       "set model.preset, for instance \"tiny-llama\", or the sizes themselves");
    return false;
  }
  bool all = true;
  for (const auto& [key, value] : sizes) {
    if (value > 0) continue;
    all = false;
    if (std::string_view(key) == "vocab_size" && !rules.config.tokenizer.path.empty()) {
      explain_missing_vocabulary(rules);
      continue;
    }
    rules.violation_at(rules.place_of_table("model"), text("model.", key, " is not given"), "",
                       "set it, or start from a model.preset");
  }
  if (all && !is_countable(m)) {
    rules.violation("model.hidden_size", text("the model has more than ", thousands(kMaxParameters), " parameters"), "",
                    "look for a size with too many digits");
    return false;
  }
  return all;
}

void check_heads(Rules& rules) {
  const ModelConfig& m = rules.config.model;
  if (!rules.loaded.is_given("model.head_dim") || rules.is_derived("model.head_dim"))
    if (m.hidden_size % m.num_attention_heads != 0)
      rules.violation_of(
          {"model.num_attention_heads", "model.hidden_size"},
          text("hidden_size = ", m.hidden_size, " is not divisible by num_attention_heads = ", m.num_attention_heads),
          "the width of a head must be whole", "change one of them, or set head_dim");
  if (m.num_attention_heads % m.num_key_value_heads != 0)
    rules.violation_of({"model.num_key_value_heads", "model.num_attention_heads"},
                       text("num_attention_heads = ", m.num_attention_heads,
                            " is not divisible by num_key_value_heads = ", m.num_key_value_heads),
                       "each key-value head serves the same number of query heads");
  if (m.head_dim % 2 != 0 && family_of(m).positions == PositionKind::rope)
    rules.violation("model.head_dim", text("head_dim = ", m.head_dim, " is odd"), "RoPE turns pairs of elements");
}

void check_rope(Rules& rules) {
  const ModelConfig& m = rules.config.model;
  const RopeScaling& s = m.rope_scaling;
  const RopeKind kind = parse_rope_kind(s.rope_type);
  if (kind == RopeKind::plain || family_of(m).positions != PositionKind::rope) return;
  if (!rules.loaded.is_given("model.rope_scaling.factor"))
    rules.violation("model.rope_scaling.rope_type", text("rope_type = \"", s.rope_type, "\" without a factor"),
                    "each kind of scaling needs one", "set model.rope_scaling.factor, or leave rope_type out");
  if (kind == RopeKind::llama3 && s.high_freq_factor <= s.low_freq_factor)
    rules.violation(
        "model.rope_scaling.high_freq_factor",
        text("high_freq_factor = ", s.high_freq_factor, " is not above low_freq_factor = ", s.low_freq_factor),
        "frequencies between the two are interpolated");
  if (kind == RopeKind::dynamic && m.head_dim <= 2)
    rules.violation("model.head_dim", text("head_dim = ", m.head_dim, " with rope_type = \"dynamic\""),
                    "its base is raised to head_dim / (head_dim - 2)");
}

void check_positions(Rules& rules) {
  const ModelConfig& m = rules.config.model;
  std::vector<std::pair<std::string, std::int64_t>> lengths = {{"training.seq_len", rules.config.training.seq_len}};
  for (std::size_t i = 0; i < rules.config.data.size(); ++i)
    if (rules.config.data[i].seq_len != rules.config.training.seq_len)
      lengths.emplace_back(text("data.", i, ".seq_len"), rules.config.data[i].seq_len);
  for (const auto& [key, length] : lengths) {
    if (length <= m.max_position_embeddings) continue;
    const std::string what =
        text("seq_len = ", length, " is longer than max_position_embeddings = ", m.max_position_embeddings);
    if (family_of(m).positions == PositionKind::learned)
      rules.violation_of({key, "model.max_position_embeddings"}, what, "learned positions end there",
                         "raise model.max_position_embeddings or shorten seq_len");
    else if (parse_rope_kind(m.rope_scaling.rope_type) != RopeKind::dynamic)  // made for longer sequences
      rules.warn(what, ": the model was not trained for such positions");
  }
}

void check_activation(Rules& rules) {
  const ModelConfig& m = rules.config.model;
  if (family_of(m).is_registered()) return;  // its layers know
  const MlpKind mlp = family_of(m).mlp;
  const bool is_silu = m.hidden_act == "silu", wants_silu = mlp == MlpKind::swiglu;
  if (is_silu != wants_silu)
    rules.violation_of({"model.hidden_act", "model.model_type"},
                       text("hidden_act = \"", m.hidden_act, "\" of a ", m.model_type, " model"),
                       wants_silu ? "its MLP is gated, and the gate is silu" : "its MLP has a gelu",
                       wants_silu ? "hidden_act = \"silu\"" : "gelu, gelu_new or gelu_pytorch_tanh");
}

void check_scores(Rules& rules) {
  const ModelConfig& m = rules.config.model;
  if (m.attn_logit_softcapping > 0 && m.attention_dropout > 0)
    rules.violation_of(
        {"model.attn_logit_softcapping", "model.attention_dropout"},
        text("attention_dropout = ", m.attention_dropout, " with attn_logit_softcapping = ", m.attn_logit_softcapping),
        "probabilities of capped scores cannot be dropped", "attention_dropout = 0");
  if (m.sliding_window_pattern > 0 && m.sliding_window == 0)
    rules.warn("sliding_window_pattern = ", m.sliding_window_pattern,
               " changes nothing without a model.sliding_window");
}

/// The loss of type "hf" is over the samples of all ranks in a microbatch: the same loss on every layout needs as many.
void check_pooled_balance(Rules& rules) {
  const ModelConfig& m = rules.config.model;
  if (parse_router_balance(m.router_aux_loss_type) != RouterBalance::hf || m.router_aux_loss_samples == 0) return;
  const std::int64_t micro_batch = rules.config.training.micro_batch_size,
                     dp = std::max<std::int64_t>(1, rules.config.parallelism.dp);
  if (m.router_aux_loss_samples == micro_batch * dp) {
    if (rules.is_derived("model.router_aux_loss_samples") && dp > 1)
      rules.warn("router_aux_loss_type = \"hf\": its balancing loss is over the ", micro_batch * dp,
                 " samples of all ranks in a microbatch, and another parallelism.dp would train with another loss; "
                 "model.router_aux_loss_samples = ",
                 micro_batch * dp, " makes that an error");
    return;
  }
  rules.violation_of({"model.router_aux_loss_samples", "training.micro_batch_size", "parallelism.dp"},
                     text("router_aux_loss_samples = ", m.router_aux_loss_samples, " with micro_batch_size ",
                          micro_batch, " x dp ", dp, " = ", micro_batch * dp),
                     "the balancing loss of type \"hf\" is over the samples of all ranks in a microbatch",
                     text("micro_batch_size x dp = ", m.router_aux_loss_samples,
                          ", or router_aux_loss_type = \"sample\", which no layout changes"));
}

void check_experts(Rules& rules) {
  const ModelConfig& m = rules.config.model;
  const FamilyInfo& family = family_of(m);
  const std::int64_t experts = m.num_local_experts;
  if (experts == 0) {
    if (family.hf.experts != HfExperts::none)
      rules.violation_of({"model.num_local_experts", "model.model_type"},
                         text("num_local_experts = 0 of a ", m.model_type, " model"),
                         "its layers are mixtures of experts", "set num_local_experts, or another model_type");
    return;
  }
  if (family.mlp != MlpKind::swiglu)
    rules.violation_of({"model.num_local_experts", "model.model_type"},
                       text("num_local_experts = ", experts, " of a ", m.model_type, " model"),
                       "experts are gated MLPs, as in llama", "set num_local_experts = 0, or another model_type");
  if (m.num_experts_per_tok > experts)
    rules.violation_of({"model.num_experts_per_tok", "model.num_local_experts"},
                       text("num_experts_per_tok = ", m.num_experts_per_tok, " of num_local_experts = ", experts),
                       "a token cannot be routed to more experts than there are");
  if (m.num_experts_per_tok == 1 && m.norm_topk_prob)
    rules.warn(
        "norm_topk_prob = true with num_experts_per_tok = 1: the one weight of a token is always 1, and the router ",
        m.router_aux_loss_coef > 0 || m.router_z_loss_coef > 0 ? "learns from its balancing losses alone"
                                                               : "learns nothing",
        " (model.norm_topk_prob = false)");
  if (parse_router_balance(m.router_aux_loss_type) == RouterBalance::hf && rules.config.parallelism.pp > 1)
    rules.violation_of({"model.router_aux_loss_type", "parallelism.pp"},
                       text("router_aux_loss_type = \"hf\" with parallelism.pp = ", rules.config.parallelism.pp),
                       "it is a product of sums over all layers, which no pipeline rank has", "\"sample\", or pp = 1");
  check_pooled_balance(rules);
}

}  // namespace

bool check_model(Rules& rules) {
  const std::string& init = rules.config.model.init;
  const auto names_folder = [&](const std::string& kind) {
    return init.starts_with(kind) && init.size() > kind.size();
  };
  if (init != "random" && !names_folder("hf:") && !names_folder("checkpoint:"))
    rules.violation("model.init", text("model.init = \"", shortened(init), "\""),
                    "\"random\", \"hf:FOLDER\" or \"checkpoint:FOLDER\"");
  if (!check_sizes(rules)) return false;
  check_heads(rules);
  check_rope(rules);
  check_positions(rules);
  check_activation(rules);
  check_scores(rules);
  check_experts(rules);
  return true;
}

void check_model_over_ranks(Rules& rules) {
  const ModelConfig& m = rules.config.model;
  const ParallelismConfig& p = rules.config.parallelism;
  const std::int64_t tp = p.tp, heads = m.num_attention_heads, kv = m.num_key_value_heads,
                     experts = m.num_local_experts;
  if (heads % tp != 0)
    rules.violation_of({"model.num_attention_heads", "parallelism.tp"},
                       text("num_attention_heads = ", heads, " is not divisible by parallelism.tp = ", tp),
                       text("heads per rank must be whole: tp ∈ ", divisors(heads, any_divisor)));
  if (!one_divides_the_other(tp, kv))
    rules.violation_of({"model.num_key_value_heads", "parallelism.tp"},
                       text("num_key_value_heads = ", kv, " and parallelism.tp = ", tp, ": neither divides the other"),
                       text("tp ∈ ", divisors(heads, one_divides_the_other, kv)));
  else if (tp > kv && heads % tp == 0)
    rules.warn("tp = ", tp, " is more than num_key_value_heads = ", kv, ": each key-value head is kept by ", tp / kv,
               " ranks");
  if (experts == 0 && m.intermediate_size % tp != 0)
    rules.violation_of({"model.intermediate_size", "parallelism.tp"},
                       text("intermediate_size = ", m.intermediate_size, " is not divisible by parallelism.tp = ", tp),
                       "columns per rank must be whole");

  if (experts == 0) {
    if (p.ep > 1)
      rules.violation("parallelism.ep", text("parallelism.ep = ", p.ep, ", but the model has no experts"), "",
                      "set ep = 1");
    return;
  }
  if (p.expert_tp > 0 && m.moe_intermediate_size % p.expert_tp != 0)
    rules.violation_of(
        {"model.moe_intermediate_size", "parallelism.expert_tp", "parallelism.tp"},
        text("moe_intermediate_size = ", m.moe_intermediate_size, " is not divisible by expert_tp = ", p.expert_tp),
        "columns per rank must be whole");
  if (m.shared_expert_intermediate_size % tp != 0)
    rules.violation_of({"model.shared_expert_intermediate_size", "parallelism.tp"},
                       text("shared_expert_intermediate_size = ", m.shared_expert_intermediate_size,
                            " is not divisible by parallelism.tp = ", tp),
                       "columns per rank must be whole");
  if (experts % p.ep != 0)
    rules.violation_of({"parallelism.ep", "model.num_local_experts"},
                       text("num_local_experts = ", experts, " is not divisible by parallelism.ep = ", p.ep),
                       text("experts per rank must be whole: ep ∈ ", divisors(experts, any_divisor)));
}

}  // namespace trireme::config
