#include "trireme/model/block.hpp"

#include "trireme/base/error.hpp"
#include "trireme/config/schema/family.hpp"
#include "trireme/model/register_family.hpp"

namespace trireme {
namespace {

std::shared_ptr<Attention> attention_of(const ModelFamily* family, const ModelConfig& m, const Parallel& parallel,
                                        std::int64_t layer) {
  if (!family || !family->attention) return make_attention(m, parallel, layer);
  std::shared_ptr<Attention> attention = family->attention(m, parallel, layer);
  require<ConfigError>(attention != nullptr, "the family ", family->name, " returned no attention for layer ", layer);
  return attention;
}

std::shared_ptr<MlpLayer> mlp_of(const ModelFamily* family, const ModelConfig& m, const Parallel& parallel,
                                 std::int64_t layer) {
  if (!family || !family->mlp) return make_mlp(m, parallel);
  std::shared_ptr<MlpLayer> mlp = family->mlp(m, parallel, layer);
  require<ConfigError>(mlp != nullptr, "the family ", family->name, " returned no MLP for layer ", layer);
  return mlp;
}

}  // namespace

Block::Block(const ModelConfig& m, const Parallel& parallel, std::int64_t layer, const ModelFamily* family)
    : attends_to_all_(attends_to_all(m, layer)) {
  const bool post_norms = config::family_of(m).post_norms;
  attention_norm_ = register_module("attention_norm", make_norm(m, parallel));
  attention_ = register_module("attention", attention_of(family, m, parallel, layer));
  if (post_norms) attention_post_norm_ = register_module("attention_post_norm", make_norm(m, parallel));
  attention_dropout_ = register_module("attention_dropout", std::make_shared<Dropout>(m.resid_pdrop));
  mlp_norm_ = register_module("mlp_norm", make_norm(m, parallel));
  mlp_ = register_module("mlp", mlp_of(family, m, parallel, layer));
  if (post_norms) mlp_post_norm_ = register_module("mlp_post_norm", make_norm(m, parallel));
  mlp_dropout_ = register_module("mlp_dropout", std::make_shared<Dropout>(m.resid_pdrop));
}

at::Tensor Block::forward(const at::Tensor& x_tD, const TokenFacts& tokens) {
  const bool selective = tokens.selective;
  const auto again = [selective](const Norm& norm, const at::Tensor& x) {
    return selective ? MaybeRebuild(norm.rebuild(x)) : std::nullopt;
  };
  const ForwardContext& context = tokens.context;
  const auto normed = [](const std::shared_ptr<Norm>& post_norm, const at::Tensor& out) {
    return post_norm ? post_norm->forward(out) : out;
  };
  const AttentionFacts& facts = attends_to_all_ ? tokens.attention_to_all : tokens.attention;
  const auto [stream_tD, normed_tD] = attention_norm_->forward(x_tD, {});
  const at::Tensor attended =
      normed(attention_post_norm_, attention_->forward(normed_tD, facts, context, again(*attention_norm_, stream_tD)));
  const auto [after_tD, normed_after_tD] =
      mlp_norm_->forward(stream_tD, attention_dropout_->forward(attended, tokens.rows_t, context));
  const MaybeRebuild rebuild = again(*mlp_norm_, after_tD);
  if (!mlp_post_norm_ && !mlp_dropout_->active(context))
    return mlp_->forward_onto(after_tD, normed_after_tD, context, rebuild, selective);
  const at::Tensor mlp_out = normed(mlp_post_norm_, mlp_->forward(normed_after_tD, context, rebuild, selective));
  return mlp_dropout_->forward_onto(after_tD, mlp_out, tokens.rows_t, context);
}

}  // namespace trireme
