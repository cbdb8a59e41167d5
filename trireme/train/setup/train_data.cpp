#include "trireme/train/setup/train_data.hpp"

#include <algorithm>
#include <map>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/json_text.hpp"
#include "trireme/config/schema/choices.hpp"
#include "trireme/config/schema/dense_grid.hpp"
#include "trireme/data/sampling/synthetic.hpp"
#include "trireme/data/tokens/open_tokens.hpp"
#include "trireme/data/tokens/sources_apart.hpp"
#include "trireme/data/tokens/token_checks.hpp"
#include "trireme/files/xxh3.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kSyntheticTokens = 1 << 24;

std::vector<std::string> check_apart(const Config& config) {
  std::vector<std::string> training;
  for (const DataStage& stage : config.data)
    for (const DataSource& source : stage.sources) training.push_back(source.path);
  const bool validates = config.validation.interval > 0;
  return data::check_sources_apart(training, validates ? config.validation.sources : std::vector<std::string>());
}

std::optional<data::Tokenizer> load_tokenizer(const Config& config) {
  if (config.tokenizer.path.empty()) return std::nullopt;
  data::Tokenizer tokenizer = data::Tokenizer::load(config.tokenizer.path);
  require<ConfigError>(tokenizer.vocab_size() <= config.model.vocab_size, "tokenizer.path = \"", config.tokenizer.path,
                       "\" has ", tokenizer.vocab_size(), " tokens, model.vocab_size = ", config.model.vocab_size,
                       "\n  fix: model.vocab_size = ", tokenizer.vocab_size());
  return tokenizer;
}

/// Sizes, and a hash of the first and last tokens: reading all of them would take minutes.
std::string identity_of(const data::TokenSource& source) {
  constexpr std::int64_t kSome = 4096;
  const std::int64_t size = source.num_tokens(), some = std::min(kSome, size);
  std::vector<std::uint32_t> tokens(static_cast<std::size_t>(2 * some));
  const std::span<std::uint32_t> all(tokens);
  source.read(0, all.first(static_cast<std::size_t>(some)));
  source.read(size - some, all.last(static_cast<std::size_t>(some)));
  return text(size, " tokens, ", source.num_documents(), " documents, ", files::str(files::xxh3(std::as_bytes(all))));
}

bool has_mask(const data::SharedTokens& tokens) { return tokens->has_loss_mask(); }

/// An answer that is cut off is learnt as if it ended there, and its other half without the question.
bool packs_whole(const DataStage& stage, bool has_loss_mask) {
  const config::Packing packing = config::parse_packing(stage.packing);
  return packing == config::Packing::whole || (packing == config::Packing::automatic && has_loss_mask);
}

/// "attention and positions of documents"; "" if both are of samples.
std::string scope_text(const data::BatchOptions& batch) {
  if (batch.attend_across_documents && !batch.restart_positions) return "";
  return text(batch.attend_across_documents ? "positions" : "attention",
              !batch.attend_across_documents && batch.restart_positions ? " and positions" : "", " of documents");
}

}  // namespace

data::SharedTokens TrainData::open_file(const std::string& path) const {
  data::OpenTokensOptions options;
  if (tokenizer_) options.document_end = tokenizer_->end_of_document();
  const data::SharedTokens tokens = data::open_tokens(path, options);
  if (tokenizer_) data::check_tokenizer(*tokens, tokenizer_->name(), tokenizer_->fingerprint());
  return tokens;
}

/// Files are opened only once, even if several stages use them.
data::SamplingPlan TrainData::make_plan() const {
  std::map<std::string, data::SharedTokens> opened;
  const auto open = [&](const std::string& path) {
    data::SharedTokens& tokens = opened[path];
    if (tokens) return tokens;
    if (path == "synthetic") {
      tokens = std::make_shared<data::SyntheticTokens>(static_cast<std::uint64_t>(config_.run.seed),
                                                       config_.model.vocab_size, kSyntheticTokens);
      return tokens;
    }
    return tokens = open_file(path);
  };
  data::SamplingPlan plan{.seed = static_cast<std::uint64_t>(config_.run.seed),
                          .global_batch_size = config_.training.global_batch_size,
                          .validation_fraction = config_.validation.fraction};
  for (const DataStage& stage : config_.data) {
    data::SamplingStage out{.start_step = stage.start_step,
                            .seq_len = stage.seq_len > 0 ? stage.seq_len : config_.training.seq_len};
    for (const DataSource& source : stage.sources) out.sources.push_back({open(source.path), source.weight});
    out.whole_documents = packs_whole(stage, std::ranges::any_of(out.sources, has_mask, &data::MixedSource::tokens));
    plan.stages.push_back(std::move(out));
  }
  return plan;
}

/// Documents of conversations are apart: an answer must not depend on what someone else was asked.
data::BatchOptions TrainData::batch_options(const DataStage& stage, bool has_loss_mask) const {
  const auto of_document = [&](const std::string& word) {
    const config::DataScope scope = config::parse_data_scope(word);
    return scope == config::DataScope::document || (scope == config::DataScope::automatic && has_loss_mask);
  };
  return {.vocab_size = config_.model.vocab_size,
          .attend_across_documents = !of_document(stage.attention),
          .restart_positions = of_document(stage.positions),
          .context = config::context_split_of(config_),
          .cp_rank = cp_rank_};
}

TrainData::TrainData(const Config& config, int cp_rank)
    : config_(config),
      cp_rank_(cp_rank),
      warnings_(check_apart(config)),
      tokenizer_(load_tokenizer(config)),
      plan_(make_plan()) {
  sampler_.emplace(plan_);
  if (const std::int64_t cut = sampler_->num_cut_documents(); cut > 0)
    warnings_.push_back(text(thousands(cut), cut == 1 ? " document is" : " documents are",
                             " longer than a sample, and truncated (packing = \"whole\" of [[data]]): raise seq_len"));
  for (std::size_t i = 0; i < config.data.size(); ++i)
    makers_.emplace_back(batch_options(
        config.data[i], std::ranges::any_of(plan_.stages[i].sources, has_mask, &data::MixedSource::tokens)));
  identity_ = make_identity();
  if (config.validation.interval > 0) {
    if (config.validation.sources.empty()) {
      const bool masked = std::ranges::any_of(data::sources_of(plan_), has_mask);
      validation_.emplace(plan_, config.training.seq_len, config.validation.samples,
                          packs_whole(config.data[0], masked));
      validation_maker_.emplace(batch_options(config.data[0], masked));
    } else {
      std::vector<data::SharedTokens> sources;
      for (const std::string& path : config.validation.sources) sources.push_back(open_file(path));
      const bool masked = std::ranges::any_of(sources, has_mask);
      validation_.emplace(sources, config.training.seq_len, config.validation.samples,
                          packs_whole(config.data[0], masked));
      validation_maker_.emplace(batch_options(config.data[0], masked));
    }
  }
}

void TrainData::continue_from(const data::DataPosition& position) { sampler_.emplace(plan_, position); }

std::map<std::string, std::string> TrainData::make_identity() const {
  std::map<std::string, std::string> out{{"held-out fraction", human_number(config_.validation.fraction)}};
  if (tokenizer_) out["tokenizer"] = tokenizer_->fingerprint();
  for (std::size_t i = 0; i < plan_.stages.size(); ++i) {
    const data::SamplingStage& stage = plan_.stages[i];
    const std::string name = text("stage ", i + 1);
    const std::string scope = scope_text(makers_[i].options());
    out[name] = text("from step ", stage.start_step, ", ", stage.seq_len, " tokens per sample",
                     scope.empty() ? "" : ", ", scope, stage.whole_documents ? ", whole documents" : "");
    for (std::size_t j = 0; j < stage.sources.size(); ++j)
      out[text(name, " source ", j + 1)] =
          text(identity_of(*stage.sources[j].tokens), ", weight ", json_number(stage.sources[j].weight));
  }
  return out;
}

const data::BatchMaker& TrainData::maker(std::int64_t step) const {
  std::size_t stage = 0;
  while (stage + 1 < plan_.stages.size() && plan_.stages[stage + 1].start_step <= step) ++stage;
  return makers_[stage];
}

void TrainData::check_first_samples() const {
  constexpr std::int64_t kEnough = 64;
  data::TokenBatch batch;
  maker(1).make(sampler_->samples(1, {0, std::min(kEnough, config_.training.global_batch_size)}), sampler_->seq_len(1),
                batch);
}

std::string TrainData::describe() const {
  const std::vector<data::SharedTokens> sources = data::sources_of(plan_);
  std::int64_t tokens = 0;
  for (const data::SharedTokens& source : sources) tokens += source->num_tokens();
  const double trained_on = static_cast<double>(tokens) * (1 - config_.validation.fraction);
  const double planned = static_cast<double>(config_.training.steps) *
                         static_cast<double>(config_.training.global_batch_size * config_.training.seq_len);
  std::string out = text(sources.front()->name(), sources.size() > 1 ? text(" and ", sources.size() - 1, " more") : "",
                         " · ", human_count(static_cast<double>(tokens)), " tokens · ",
                         human_count(planned / trained_on), " epochs planned");
  if (tokenizer_) out += text(" · tokenizer ", tokenizer_->name(), " (", tokenizer_->fingerprint(), ")");
  if (const std::string scope = scope_text(makers_[0].options()); !scope.empty()) out += " · " + scope;
  if (plan_.stages[0].whole_documents) out += " · whole documents in a sample";
  if (validation_) out += text(" · ", validation_->size(), " samples to validate on");
  return out;
}

}  // namespace trireme
