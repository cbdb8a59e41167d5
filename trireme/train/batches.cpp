#include "trireme/train/batches.hpp"

#include <algorithm>
#include <map>

#include <ATen/ops/from_blob.h>
#include <ATen/ops/where.h>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/data/open_tokens.hpp"
#include "trireme/data/synthetic.hpp"
#include "trireme/data/token_checks.hpp"
#include "trireme/nn/cross_entropy.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kSyntheticTokens = 1 << 24;

std::optional<Tokenizer> load_tokenizer(const Config& config) {
  if (config.tokenizer.path.empty()) return std::nullopt;
  Tokenizer tokenizer = Tokenizer::load(config.tokenizer.path);
  require<ConfigError>(tokenizer.vocab_size() <= config.model.vocab_size, "tokenizer.path = \"", config.tokenizer.path,
                       "\" has ", tokenizer.vocab_size(), " tokens, model.vocab_size = ", config.model.vocab_size,
                       "\n  fix: model.vocab_size = ", tokenizer.vocab_size());
  return tokenizer;
}

at::Tensor as_tensor(const std::vector<std::int64_t>& numbers, at::Device device) {
  return at::from_blob(const_cast<std::int64_t*>(numbers.data()), {static_cast<std::int64_t>(numbers.size())},
                       at::kLong)
      .to(device, /*non_blocking=*/false, /*copy=*/true);
}

}  // namespace

/// Files are opened once, however many stages name them.
SamplingPlan Batches::make_plan() const {
  std::map<std::string, SharedTokens> opened;
  OpenTokensOptions open_options;
  if (tokenizer_) open_options.document_end = tokenizer_->end_of_document();
  const auto open = [&](const std::string& path) {
    SharedTokens& tokens = opened[path];
    if (tokens) return tokens;
    if (path == "synthetic") {
      tokens = std::make_shared<SyntheticTokens>(static_cast<std::uint64_t>(config_.run.seed), config_.model.vocab_size,
                                                 kSyntheticTokens);
      return tokens;
    }
    tokens = open_tokens(path, open_options);
    if (tokenizer_) check_tokenizer(*tokens, tokenizer_->name(), tokenizer_->fingerprint());
    return tokens;
  };
  SamplingPlan plan{.seed = static_cast<std::uint64_t>(config_.run.seed),
                    .global_batch_size = config_.training.global_batch_size,
                    .validation_fraction = config_.validation.interval > 0 ? config_.validation.fraction : 0};
  for (const DataStage& stage : config_.data) {
    SamplingStage out{.start_step = stage.start_step,
                      .seq_len = stage.seq_len > 0 ? stage.seq_len : config_.training.seq_len};
    for (const DataSource& source : stage.sources) out.sources.push_back({open(source.path), source.weight});
    plan.stages.push_back(std::move(out));
  }
  return plan;
}

Batches::Batches(const Config& config, const Mesh& mesh, at::Device device)
    : config_(config),
      device_(device),
      dp_(mesh.group(Axis::dp).size()),
      dp_rank_(mesh.group(Axis::dp).rank()),
      tokenizer_(load_tokenizer(config)),
      plan_(make_plan()),
      sampler_(plan_),
      split_(config.training.global_batch_size, config.training.micro_batch_size, dp_, dp_rank_),
      maker_({.vocab_size = config.model.vocab_size}) {
  if (config.validation.interval > 0) {
    if (config.validation.sources.empty()) {
      validation_.emplace(plan_, config.training.seq_len, config.validation.samples);
    } else {
      std::vector<SharedTokens> sources;
      for (const std::string& path : config.validation.sources) {
        sources.push_back(open_tokens(path));
        if (tokenizer_) check_tokenizer(*sources.back(), tokenizer_->name(), tokenizer_->fingerprint());
      }
      validation_.emplace(sources, config.training.seq_len, config.validation.samples);
    }
  }
  prefetch_ = std::make_unique<Prefetch>(
      [this](std::int64_t step, std::int64_t microbatch, TokenBatch& out) {
        maker_.make(sampler_.samples(step, split_.rows(microbatch)), sampler_.seq_len(step), out);
      },
      num_microbatches());
}

Batches::~Batches() = default;

Microbatch Batches::tensors_of(const TokenBatch& batch, std::int64_t step, bool training) const {
  Microbatch out;
  out.ids_T = as_tensor(batch.tokens, device_);
  std::vector<std::int64_t> targets = batch.labels;
  for (std::size_t i = 0; i < targets.size(); ++i)
    if (!batch.loss_mask[i]) targets[i] = CrossEntropyOptions{}.ignore_index;
  out.targets_T = as_tensor(targets, device_);
  out.valid = batch.num_valid_labels;
  out.context = {.seed = static_cast<std::uint64_t>(config_.run.seed),
                 .step = step,
                 .training = training,
                 .batch = batch.num_samples,
                 .length = batch.local_length,
                 .whole_length = batch.seq_len,
                 .samples_T = as_tensor(batch.rows, device_).repeat_interleave(batch.local_length),
                 .positions_T = as_tensor(batch.positions, device_)};
  return out;
}

std::vector<Microbatch> Batches::take(std::int64_t step) {
  std::vector<Microbatch> out;
  for (std::int64_t m = 0; m < num_microbatches(); ++m) {
    TokenBatch batch = prefetch_->take(step, m);
    out.push_back(tensors_of(batch, step, true));
    prefetch_->recycle(std::move(batch));
  }
  return out;
}

std::int64_t Batches::num_validation_batches() const {
  return validation_ ? validation_->num_batches(config_.training.micro_batch_size, dp_) : 0;
}

Microbatch Batches::validation_batch(std::int64_t b) const {
  TokenBatch batch;
  maker_.make(validation_->samples(b, config_.training.micro_batch_size, dp_, dp_rank_), validation_->seq_len(), batch);
  return tensors_of(batch, 0, false);
}

std::string Batches::describe() const {
  const std::vector<SharedTokens> sources = sources_of(plan_);
  std::int64_t tokens = 0;
  for (const SharedTokens& source : sources) tokens += source->num_tokens();
  const double planned = static_cast<double>(config_.training.steps) *
                         static_cast<double>(config_.training.global_batch_size * config_.training.seq_len);
  std::string out = text(sources.front()->name(), sources.size() > 1 ? text(" and ", sources.size() - 1, " more") : "",
                         " · ", human_count(static_cast<double>(tokens)), " tokens · ",
                         human_count(planned / static_cast<double>(tokens)), " epochs planned");
  if (tokenizer_) out += text(" · tokenizer ", tokenizer_->name(), " (", tokenizer_->fingerprint(), ")");
  if (validation_) out += text(" · ", validation_->size(), " samples held out");
  return out;
}

}  // namespace trireme
