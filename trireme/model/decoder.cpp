#include "trireme/model/decoder.hpp"

#include <cmath>

#include <ATen/ops/scalar_tensor.h>

#include "trireme/base/error.hpp"
#include "trireme/config/schema/choices.hpp"
#include "trireme/config/schema/family.hpp"
#include "trireme/model/block.hpp"
#include "trireme/model/check_parameters.hpp"
#include "trireme/model/register_family.hpp"
#include "trireme/parallel/expert/pooled_balance.hpp"

namespace trireme {
namespace {

bool has_learned_positions(const ModelConfig& m) {
  return config::family_of(m).positions == config::PositionKind::learned;
}

std::shared_ptr<Norm> last_norm(const ModelConfig& m, const Parallel& parallel, const ModelFamily* family) {
  if (!family || !family->norm) return make_norm(m, parallel);
  std::shared_ptr<Norm> norm = family->norm(m, parallel);
  require<ConfigError>(norm != nullptr, "the family ", family->name, " returned a null norm");
  return norm;
}

std::shared_ptr<DecoderLayer> make_layer(const ModelConfig& m, const Parallel& parallel, const ModelFamily* family,
                                         std::int64_t i) {
  if (!family || !family->layer) return std::make_shared<Block>(m, parallel, i, family);
  std::shared_ptr<DecoderLayer> layer = family->layer(m, parallel, i);
  require<ConfigError>(layer != nullptr, "the family ", family->name, " returned null for layer ", i);
  return layer;
}

}  // namespace

std::optional<RopeOptions> rope_options(const ModelConfig& m) {
  if (has_learned_positions(m)) return std::nullopt;
  const RopeScaling& s = m.rope_scaling;
  const std::int64_t old_length = config::rope_original_length(m);
  const auto scaling = [&]() -> RopeFrequencies {
    switch (config::parse_rope_kind(s.rope_type)) {
      case config::RopeKind::plain: return PlainRope{};
      case config::RopeKind::linear: return LinearScaling{.factor = s.factor};
      case config::RopeKind::dynamic:
        return DynamicScaling{.factor = s.factor, .old_length = m.max_position_embeddings};
      case config::RopeKind::llama3:
        return Llama3Scaling{.factor = s.factor,
                             .low_freq_factor = s.low_freq_factor,
                             .high_freq_factor = s.high_freq_factor,
                             .old_length = old_length};
      case config::RopeKind::yarn:
        return YarnScaling{.factor = s.factor,
                           .beta_fast = s.beta_fast,
                           .beta_slow = s.beta_slow,
                           .attention_factor = s.attention_factor > 0
                                                   ? s.attention_factor
                                                   : yarn_attention_factor(s.factor, s.mscale, s.mscale_all_dim),
                           .truncate = s.truncate,
                           .old_length = old_length};
    }
    throw InternalError("a kind of RoPE that is none");
  };
  return RopeOptions{.head_dim = m.head_dim, .theta = m.rope_theta, .frequencies = scaling()};
}

Decoder::Decoder(const ModelConfig& m, Parallel parallel) : Decoder(m, parallel, DecoderPart::whole(m)) {}

Decoder::Decoder(const ModelConfig& m, Parallel parallel, DecoderPart part)
    : model_(m),
      part_(std::move(part)),
      family_(find_model_family(m.model_type)),
      embedding_scale_(config::family_of(m).scaled_embedding ? std::sqrt(static_cast<double>(m.hidden_size)) : 1),
      logit_softcap_(m.final_logit_softcapping),
      parallel_(parallel) {
  const bool head_needs_embedding = part_.has_head && m.tie_word_embeddings;
  if (part_.has_embedding || head_needs_embedding)
    embedding_ = register_module("embedding", std::make_shared<ParallelVocabulary>(
                                                  m.vocab_size, m.hidden_size, parallel,
                                                  VocabularyTie{.info = part_.tie, .is_copy = !part_.has_embedding}));
  if (part_.has_embedding && has_learned_positions(m))
    positions_ = register_module(
        "positions", std::make_shared<LearnedPositions>(m.max_position_embeddings, m.hidden_size, parallel));
  if (part_.has_embedding) dropout_ = register_module("embedding_dropout", std::make_shared<Dropout>(m.embd_pdrop));
  const auto layers = register_module("layers", std::make_shared<torch::nn::Module>());
  for (std::int64_t i = part_.layers.begin; i < part_.layers.end; ++i)
    blocks_.push_back(layers->register_module(std::to_string(i), make_layer(m, parallel, family_, i)));
  if (part_.has_head) norm_ = register_module("norm", last_norm(m, parallel, family_));
  if (part_.has_head && !m.tie_word_embeddings)
    head_ = register_module(
        "head", std::make_shared<ColumnLinear>(m.hidden_size, m.vocab_size, parallel, ColumnOptions{.padded = true}));
  family_ ? check_own_layers() : check_parameters(params_of(*this), m, part_);
  if (auto rope = rope_options(m)) rope_.emplace(std::move(*rope));
  set_paths(*this);  // dropout masks depend on the names
}

/// Models are made without memory, on `meta`: what is not declared has no values, and no rank knows what to share.
void Decoder::check_own_layers() const {
  for (const Param& param : params_of(*this))
    require<ConfigError>(param.declared, "the family ", family_->name, ": ", param.name,
                         " is a parameter of a module that is not a Layer: how ranks share it is unknown",
                         "\n  fix: Layer::declare(), or a layer of trireme/nn in place of torch's");
  for (const auto& buffer : named_buffers())
    throw ConfigError(text("the family ", family_->name, ": ", buffer.key(),
                           " is a buffer, which no checkpoint would hold",
                           "\n  fix: compute it in forward, or Layer::declare() a parameter that needs no gradient"));
}

at::Tensor Decoder::forward_layer(DecoderLayer& layer, const at::Tensor& x_tD, const TokenFacts& tokens) const {
  // No layer in a Block uses libtorch's generators: dropout masks are a function of their inputs.
  const at::Tensor y_tD = run_layer(layer, x_tD, tokens, recompute_, {.preserve_rng = family_ != nullptr});
  if (!family_ || (y_tD.defined() && y_tD.sizes() == x_tD.sizes())) return y_tD;
  throw ConfigError(text("the family ", family_->name, ": ", layer.path(), " returns ",
                         y_tD.defined() ? text(y_tD.sizes()) : "nothing", " for an input of ", x_tD.sizes(),
                         ": must be of the same sizes"));
}

const at::Tensor& Decoder::head_weight() const { return head_ ? head_->weight_fD : embedding_->weight_vD; }

TokenFacts Decoder::facts_of(const ForwardContext& context, at::ScalarType dtype) {
  TokenFacts facts{.context = context, .attention = {}, .rows_t = parallel_.own_tokens(context.rows_T())};
  if (rope_) facts.attention.rotation = rope_->rotation(context.model_positions_T(), context.whole_length, dtype);
  facts.attention_to_all.rotation = facts.attention.rotation;
  const auto add_mask = [&](bool to_all, AttentionFacts& attention) {
    std::int64_t layer = part_.layers.begin;
    while (layer < part_.layers.end && attends_to_all(model_, layer) != to_all) ++layer;
    if (layer == part_.layers.end) return;  // this part has no such layer
    const AttentionOptions options = attention_options(model_, layer);
    attention.flash = flash_mask(context, options, parallel_, dtype);
    if (!attention.flash) attention.sees = attention_mask(context, options.window, parallel_);
  };
  add_mask(false, facts.attention);
  add_mask(true, facts.attention_to_all);
  if (context.training && balances_all_layers(model_)) {
    require<ConfigError>(part_.has_embedding && part_.has_head,
                         "model.router_aux_loss_type = \"hf\" in a pipeline: its loss needs all layers");
    const Mesh& mesh = parallel_.params.mesh();
    facts.context.pooled_balance =
        std::make_shared<PooledBalance>(model_.router_aux_loss_coef, model_.num_experts_per_tok, mesh.world_group(),
                                        mesh.expert_group(Axis::tp).size());
  }
  return facts;
}

at::Tensor Decoder::hidden(const at::Tensor& input, const ForwardContext& context) {
  const TokenFacts tokens =
      facts_of(context, part_.has_embedding ? embedding_->weight_vD.scalar_type() : input.scalar_type());
  const auto probed = [&context](const Layer& layer, const at::Tensor& x) {
    if (context.probe) context.probe(layer.path(), x);
    return x;
  };
  at::Tensor x_tD = input;
  if (part_.has_embedding) {
    require(input.dim() == 1 && input.size(0) == context.tokens(), "decoder: token ids of sizes ", input.sizes(),
            " for ", context.batch, " samples of ", context.length, " tokens");
    x_tD = visit(0, [&] {
      at::Tensor words_tD = embedding_->forward(input);
      if (embedding_scale_ != 1) words_tD = words_tD * at::scalar_tensor(embedding_scale_, words_tD.options());
      return positions_ ? words_tD + positions_->forward(parallel_.own_tokens(context.model_positions_T())) : words_tD;
    });
    x_tD = probed(*embedding_, dropout_->forward(x_tD, tokens.rows_t, context));
  }
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    x_tD =
        probed(*blocks_[i], visit(first_layer_visit() + i, [&] { return forward_layer(*blocks_[i], x_tD, tokens); }));
  return norm_ ? probed(*norm_, visit(norm_visit(), [&] { return norm_->forward(x_tD); })) : x_tD;
}

LossSum Decoder::loss_of_hidden(const at::Tensor& x_tD, const at::Tensor& targets_T,
                                const CrossEntropyOptions& options) {
  LossSum sum;
  CrossEntropyOptions with_cap = options;
  with_cap.softcap = logit_softcap_;
  sum.loss = visit(head_visit(), [&] {
    sum = sharded_cross_entropy(x_tD, head_weight(), targets_T, model_.vocab_size, parallel_, with_cap);
    return sum.loss;
  });
  return sum;
}

LossSum Decoder::loss(const at::Tensor& ids_T, const at::Tensor& targets_T, const ForwardContext& context,
                      const CrossEntropyOptions& options) {
  return loss_of_hidden(hidden(ids_T, context), targets_T, options);
}

at::Tensor Decoder::logits(const at::Tensor& ids_T, const ForwardContext& context) {
  const at::Tensor x_tD = hidden(ids_T, context);
  return visit(head_visit(), [&] {
    return softcapped(full_logits(x_tD, head_weight(), model_.vocab_size, parallel_), logit_softcap_);
  });
}

at::Tensor Decoder::sharded_logits_of_hidden(const at::Tensor& x_tD) {
  return visit(head_visit(), [&] {
    return softcapped(trireme::sharded_logits(x_tD, head_weight(), model_.vocab_size, parallel_), logit_softcap_);
  });
}

at::Tensor Decoder::sharded_logits(const at::Tensor& ids_T, const ForwardContext& context) {
  return sharded_logits_of_hidden(hidden(ids_T, context));
}

UnitPlan Decoder::unit_plan(const UnitOptions& options) const {
  require<ConfigError>(options.layers_per_unit >= 0, "a unit of ", options.layers_per_unit,
                       " layers: must be at least 1, or 0 for all");
  const bool whole = options.layers_per_unit == 0;
  UnitPlan plan;
  std::size_t unit = 0;
  const auto add = [&](const std::string& name, const torch::nn::Module& module) {
    if (plan.units.size() <= unit) plan.units.push_back({whole ? "the model" : name, {}});
    for (const Param& param : params_of(module)) plan.units[unit].params.push_back(name + "." + param.name);
  };
  const auto next_unit = [&] { unit = whole ? 0 : unit + 1; };
  if (part_.has_embedding) {
    add("embedding", *embedding_);
    if (positions_) add("positions", *positions_);
    plan.visits.push_back({unit, whole});
  }
  bool first = !part_.has_embedding;  // the first module of a unit needs no next one
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (!first && (whole || i % static_cast<std::size_t>(options.layers_per_unit) == 0)) next_unit();
    first = false;
    add(text("layers.", part_.layers.begin + static_cast<std::int64_t>(i)), *blocks_[i]);
    plan.visits.push_back({unit, true});
  }
  if (!part_.has_head) return plan;
  next_unit();
  add("norm", *norm_);
  plan.visits.push_back({unit, true});
  if (head_ || !part_.has_embedding) {
    next_unit();
    head_ ? add("head", *head_) : add("embedding", *embedding_);
  } else {
    unit = 0;  // the embedding's weight
  }
  plan.visits.push_back({unit, whole || options.head_weight_in_backward});
  return plan;
}

void Decoder::use_units(UnitHooks* hooks, const UnitPlan& plan) {
  require(plan.visits.size() == num_visits(), "a plan of ", plan.visits.size(), " visits for a model with ",
          num_visits());
  hooks_ = hooks;
  visits_ = plan.visits;
}

std::vector<std::shared_ptr<Router>> Decoder::routers() const {
  std::vector<std::shared_ptr<Router>> out;
  for (const auto& module : modules(/*include_self=*/false))
    if (auto router = std::dynamic_pointer_cast<Router>(module)) out.push_back(std::move(router));
  return out;
}

}  // namespace trireme
