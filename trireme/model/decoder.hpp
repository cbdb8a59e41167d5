#pragma once
// A decoder for the GPT-2, Llama, Mistral and Qwen families, also with mixtures of experts, and for families that a
// program registers (register_family.hpp): written like a single-device model, runs on a mesh.
#include <memory>
#include <optional>
#include <vector>

#include "trireme/config/schema/config.hpp"
#include "trireme/describe/counts.hpp"
#include "trireme/model/decoder_layer.hpp"
#include "trireme/model/decoder_part.hpp"
#include "trireme/nn/dropout.hpp"
#include "trireme/nn/norm.hpp"
#include "trireme/nn/unit.hpp"
#include "trireme/parallel/expert/router.hpp"
#include "trireme/parallel/tensor/cross_entropy.hpp"
#include "trireme/parallel/tensor/embedding.hpp"
#include "trireme/parallel/tensor/linear.hpp"

namespace trireme {

struct ModelFamily;

// T tokens, t = those that this rank holds between the layers (all, or T / tp with sequence parallelism); D features

/// Parameters are uninitialized until init_parameters() or load_hugging_face(). Their names do not depend on the part.
class Decoder final : public Layer {
 public:
  /// `model` with its derived values (derive.hpp).
  Decoder(const ModelConfig& model, Parallel parallel);
  Decoder(const ModelConfig& model, Parallel parallel, DecoderPart part);

  /// This part. `input`: the token ids, i64 [T], the same on all ranks of tp, if it has the embedding, else the output
  /// of the part before. Returns the input of the next part, or of the head: [t, D].
  at::Tensor hidden(const at::Tensor& input, const ForwardContext& context);
  /// The summed loss of predicting targets_T from the output of hidden(). Only with a head, like all that follow.
  LossSum loss_of_hidden(const at::Tensor& x_tD, const at::Tensor& targets_T, const CrossEntropyOptions& options = {});
  /// This rank's shard of the logits of rows of that output, [rows, vocabulary_range], without padding: for sample().
  at::Tensor sharded_logits_of_hidden(const at::Tensor& x_tD);
  // For a decoder that is not cut:
  /// The summed loss of predicting targets_T (CrossEntropyOptions::ignore_index for masked labels).
  LossSum loss(const at::Tensor& ids_T, const at::Tensor& targets_T, const ForwardContext& context,
               const CrossEntropyOptions& options = {});
  /// sharded_logits_of_hidden() of all tokens.
  at::Tensor sharded_logits(const at::Tensor& ids_T, const ForwardContext& context);
  /// [T, vocab_size] on every rank: for inspection.
  at::Tensor logits(const at::Tensor& ids_T, const ForwardContext& context);

  /// Those of the layers with experts.
  std::vector<std::shared_ptr<Router>> routers() const;

  /// Of the layers, from now on. selective: see TokenFacts; full: everything but the inputs of the layers.
  void set_recompute(config::Recompute mode) { recompute_ = mode; }
  struct UnitOptions {
    std::int64_t layers_per_unit = 1;      // 0: the whole model is one unit
    bool head_weight_in_backward = false;  // CrossEntropyOptions::gradients_in_backward
  };
  /// The units that ZeRO gathers and frees together: the embedding with its positions, groups of layers_per_unit
  /// layers, the last norm, the head.
  UnitPlan unit_plan(const UnitOptions& options) const;
  UnitPlan unit_plan() const { return unit_plan(UnitOptions{}); }
  /// From now on `hooks` are called around every visit of `plan`, made by unit_plan(); nullptr: no hooks.
  void use_units(UnitHooks* hooks, const UnitPlan& plan);
  const ModelConfig& config() const { return model_; }
  const Parallel& parallel() const { return parallel_; }
  const DecoderPart& part() const { return part_; }

 private:
  const at::Tensor& head_weight() const;
  std::size_t first_layer_visit() const { return part_.has_embedding ? 1 : 0; }
  std::size_t norm_visit() const { return first_layer_visit() + blocks_.size(); }
  std::size_t head_visit() const { return norm_visit() + 1; }
  std::size_t num_visits() const { return norm_visit() + (part_.has_head ? 2 : 0); }
  /// Runs body() as visit `v` of a forward: the embedding, each layer, the norm, the head.
  template <class Body>
  at::Tensor visit(std::size_t v, Body&& body) {
    return in_unit(hooks_, hooks_ ? visits_[v] : UnitVisit{}, std::forward<Body>(body));
  }
  TokenFacts facts_of(const ForwardContext& context, at::ScalarType dtype);
  void check_own_layers() const;
  at::Tensor forward_layer(DecoderLayer& layer, const at::Tensor& x_tD, const TokenFacts& tokens) const;

  const ModelConfig model_;
  const DecoderPart part_;
  const ModelFamily* const family_;  // nullptr: built in
  const double embedding_scale_, logit_softcap_;
  config::Recompute recompute_ = config::Recompute::none;
  std::optional<Rope> rope_;  // none for learned positions
  const Parallel parallel_;
  std::shared_ptr<ParallelVocabulary> embedding_;  // also of a last part whose head is tied
  std::shared_ptr<LearnedPositions> positions_;
  std::shared_ptr<Dropout> dropout_;
  std::vector<std::shared_ptr<DecoderLayer>> blocks_;
  std::shared_ptr<Norm> norm_;
  std::shared_ptr<ColumnLinear> head_;  // none if tied: the embedding's weight is used

  UnitHooks* hooks_ = nullptr;
  std::vector<UnitVisit> visits_;
};

/// Plain or scaled; none for families with learned positions.
std::optional<RopeOptions> rope_options(const ModelConfig& model);

}  // namespace trireme
