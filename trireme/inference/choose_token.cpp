#include "trireme/inference/choose_token.hpp"

#include <algorithm>
#include <limits>

#include <ATen/ops/arange.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "trireme/parallel/tensor/embedding.hpp"

namespace trireme {

TokenChooser::TokenChooser(InferenceModel& model, const ChoiceOptions& options, std::int64_t first_sequence,
                           const std::vector<std::vector<data::TokenId>>& prompts)
    : model_(model),
      options_(options),
      first_sequence_(first_sequence),
      batch_(static_cast<std::int64_t>(prompts.size())) {
  if (options.repetition_penalty == 1) return;
  const at::Tensor has = at::zeros({batch_, model.config().vocab_size}, at::kBool);
  auto element = has.accessor<bool, 2>();
  for (std::int64_t i = 0; i < batch_; ++i)
    for (const data::TokenId id : prompts[static_cast<std::size_t>(i)]) element[i][id] = true;
  has_bV_ = has.to(model.device());
}

at::Tensor TokenChooser::noise(std::int64_t draw) const {
  if (options_.sampling.temperature == 0) return {};
  return gumbel_noise(at::arange(first_sequence_, first_sequence_ + batch_, at::kLong), model_.config().vocab_size,
                      model_.mesh().group(Axis::tp), options_.sampling, draw);
}

/// transformers' rule: a logit that is positive is divided by the penalty, a negative one multiplied. In place.
void TokenChooser::penalize(const at::Tensor& logits_bv) const {
  const Range own = vocabulary_range(model_.config().vocab_size, model_.mesh().group(Axis::tp));
  const double penalty = options_.repetition_penalty;
  const at::Tensor penalized = at::where(logits_bv.gt(0), logits_bv / penalty, logits_bv * penalty);
  logits_bv.copy_(at::where(has_bV_.narrow(1, own.begin, own.size()), penalized, logits_bv));
}

at::Tensor TokenChooser::choose(const at::Tensor& hidden_bD, const at::Tensor& noise_bv) {
  const std::int64_t entries = model_.config().vocab_size;
  Group& tp = model_.mesh().group(Axis::tp);
  const at::Tensor logits_bv = model_.decoder().sharded_logits_of_hidden(hidden_bD).to(at::kDouble);
  const Range own = vocabulary_range(entries, tp);
  if (has_bV_.defined()) penalize(logits_bv);
  if (const std::int64_t known = options_.known_tokens; known > 0 && known < own.end) {
    const std::int64_t first = std::max<std::int64_t>(0, known - own.begin);
    logits_bv.narrow(1, first, own.size() - first).fill_(-std::numeric_limits<double>::infinity());
  }
  const at::Tensor tokens_b = sample(logits_bv, entries, tp, options_.sampling, noise_bv);
  if (has_bV_.defined()) has_bV_.scatter_(1, tokens_b.unsqueeze(1), true);
  return tokens_b;
}

}  // namespace trireme
