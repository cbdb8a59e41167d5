#include "trireme/inference/generator.hpp"

#include <algorithm>
#include <optional>

#include <ATen/ATen.h>

#include "trireme/base/error.hpp"
#include "trireme/base/stopwatch.hpp"
#include "trireme/inference/choose_token.hpp"
#include "trireme/inference/token_loop.hpp"
#include "trireme/kernels/cuda_graph.hpp"
#include "trireme/nn/kv_cache.hpp"

namespace trireme {
namespace {

using data::TokenId;

/// The state of one call of generate().
class Generation {
 public:
  Generation(InferenceModel& model, const std::vector<std::vector<TokenId>>& prompts, const GeneratorOptions& options)
      : model_(checked(model, prompts, options)),
        options_(options),
        chooser_(model,
                 {.sampling = options.sampling,
                  .repetition_penalty = options.repetition_penalty,
                  .known_tokens = options.known_tokens},
                 options.first_sequence, prompts),
        all_(prompts),
        results_(prompts.size()),
        going_(prompts.size(), true) {
    if (options.cached) cache_ = std::make_shared<KvCache>();
    if (runs_ahead() && model.device().is_cuda()) kernels::use_own_stream(model.device());  // for the graphs
  }

  std::vector<GeneratedSequence> run(const OnToken& on_token, GenerationSpeed* speed) {
    const at::NoGradGuard no_grad;
    Stopwatch time;
    std::optional<TokenLoop> loop;
    for (std::int64_t draw = 0; any_going(); ++draw) {
      if (draw == 1 && runs_ahead()) begin(loop);
      take(loop ? next_tokens(*loop) : next_tokens(draw), on_token);
      if (speed == nullptr) continue;
      if (draw == 0) {
        speed->prompt_seconds += time.seconds();
        time = Stopwatch();
      }
    }
    if (speed != nullptr) {
      speed->seconds += time.seconds();
      speed->sequences += batch();
      for (std::size_t b = 0; b < all_.size(); ++b) {
        speed->tokens += static_cast<std::int64_t>(results_[b].tokens.size());
        speed->prompt_tokens += static_cast<std::int64_t>(all_[b].size() - results_[b].tokens.size());
      }
    }
    return results_;
  }

 private:
  static InferenceModel& checked(InferenceModel& model, const std::vector<std::vector<TokenId>>& prompts,
                                 const GeneratorOptions& options) {
    check_generation(prompts, options, model.config().max_position_embeddings);
    return model;
  }

  bool runs_ahead() const {
    using Ahead = GeneratorOptions::Ahead;
    if (!options_.cached || options_.ahead == Ahead::never || !TokenLoop::takes(model_)) return false;
    return options_.ahead == Ahead::always || model_.device().is_cuda();
  }

  void begin(std::optional<TokenLoop>& loop) {
    TokenLoop::Begin begin{.tokens = {}, .lengths = {}, .draws = 1};
    for (const auto& sequence : all_) {
      begin.tokens.push_back(sequence.back());
      begin.lengths.push_back(static_cast<std::int64_t>(sequence.size()));
    }
    loop.emplace(model_, chooser_, cache_, begin, /*records=*/model_.device().is_cuda());
    loop->start();
  }

  /// The one after them is on its way before the host looks at these tokens; if they were the last, it is dropped.
  std::vector<TokenId> next_tokens(TokenLoop& loop) {
    loop.start();
    return loop.take();
  }

  std::int64_t most_tokens() const { return model_.config().max_position_embeddings; }
  bool any_going() const { return std::ranges::find(going_, true) != going_.end(); }
  std::int64_t batch() const { return static_cast<std::int64_t>(all_.size()); }

  /// The context of a forward, and the ids of its tokens: the whole sequences, padded at their end, or with a cache
  /// after the first forward their last token. Padding follows all that attends, so it changes nothing.
  struct Forward {
    at::Tensor ids_T;
    ForwardContext context;
    at::Tensor last_b;  // rows of the last token of each sequence
  };

  Forward next_forward() const {
    std::int64_t longest = 0;
    for (const auto& sequence : all_) longest = std::max(longest, static_cast<std::int64_t>(sequence.size()));
    const bool only_last = cache_ && has_run_;
    const std::int64_t b = batch(), s = only_last ? 1 : longest;
    at::Tensor ids = at::zeros({b, s}, at::kLong), positions = at::empty({b, s}, at::kLong);
    at::Tensor last = at::empty({b}, at::kLong);
    auto id = ids.accessor<std::int64_t, 2>(), position = positions.accessor<std::int64_t, 2>();
    auto row = last.accessor<std::int64_t, 1>();
    for (std::int64_t i = 0; i < b; ++i) {
      const std::vector<TokenId>& sequence = all_[static_cast<std::size_t>(i)];
      const auto length = static_cast<std::int64_t>(sequence.size());
      for (std::int64_t j = 0; j < s; ++j) {
        position[i][j] = only_last ? length - 1 : j;
        const std::int64_t from = only_last ? length - 1 : j;
        if (from < length) id[i][j] = sequence[static_cast<std::size_t>(from)];
      }
      row[i] = i * s + (only_last ? 0 : length - 1);
    }
    const at::Device device = model_.device();
    Forward out{.ids_T = ids.flatten().to(device), .context = {}, .last_b = last.to(device)};
    out.context = whole_samples(b, s, 0, device);
    out.context.training = false;
    out.context.whole_length = longest;
    out.context.positions_T = positions.flatten().to(device);
    out.context.cache = cache_;
    return out;
  }

  std::vector<TokenId> next_tokens(std::int64_t draw) {
    const Forward forward = next_forward();
    const at::Tensor hidden_TD = model_.hidden(forward.ids_T, forward.context);
    has_run_ = true;
    Mesh& mesh = model_.mesh();
    at::Tensor tokens_b = at::empty({batch()}, at::TensorOptions(at::kLong).device(model_.device()));
    if (model_.is_last_stage()) {
      at::Tensor noise_bv = chooser_.noise(draw);
      if (noise_bv.defined()) noise_bv = noise_bv.to(model_.device());
      tokens_b = chooser_.choose(hidden_TD.index_select(0, forward.last_b), noise_bv);
    }
    Group& pp = mesh.group(Axis::pp);
    if (pp.size() > 1) tokens_b = pp.broadcast_(tokens_b.contiguous(), pp.size() - 1).wait();
    const at::Tensor host = tokens_b.cpu();
    std::vector<TokenId> out;
    for (std::int64_t b = 0; b < batch(); ++b) out.push_back(static_cast<TokenId>(host[b].item<std::int64_t>()));
    return out;
  }

  /// Sequences that have ended stay in the batch, and their tokens are dropped.
  void take(const std::vector<TokenId>& tokens, const OnToken& on_token) {
    for (std::size_t b = 0; b < tokens.size(); ++b) {
      if (!going_[b]) continue;
      const auto end = [&](Finish why) {
        results_[b].finish = why;
        going_[b] = false;
      };
      if (std::ranges::find(options_.end_tokens, tokens[b]) != options_.end_tokens.end()) {
        end(Finish::end_token);
        continue;
      }
      results_[b].tokens.push_back(tokens[b]);
      all_[b].push_back(tokens[b]);
      if (on_token && !on_token(b, tokens[b]))
        end(Finish::stopped);
      else if (static_cast<std::int64_t>(results_[b].tokens.size()) == options_.max_tokens)
        end(Finish::max_tokens);
      else if (static_cast<std::int64_t>(all_[b].size()) == most_tokens())
        end(Finish::max_length);
    }
  }

  InferenceModel& model_;
  const GeneratorOptions& options_;
  TokenChooser chooser_;
  std::vector<std::vector<TokenId>> all_;  // prompts and what followed
  std::vector<GeneratedSequence> results_;
  std::vector<bool> going_;
  std::shared_ptr<KvCache> cache_;
  bool has_run_ = false;
};

}  // namespace

const char* name(Finish finish) {
  switch (finish) {
    case Finish::end_token: return "end_token";
    case Finish::stopped: return "stop";
    case Finish::max_tokens: return "max_tokens";
    case Finish::max_length: break;
  }
  return "max_length";
}

void check_generation(const std::vector<std::vector<TokenId>>& prompts, const GeneratorOptions& options,
                      std::int64_t length) {
  check(options.sampling);
  require<ConfigError>(options.max_tokens >= 1, options.max_tokens, " tokens to generate: must be at least 1");
  require<ConfigError>(options.repetition_penalty > 0, "repetition penalty ", options.repetition_penalty,
                       ": must be above 0");
  for (std::size_t b = 0; b < prompts.size(); ++b) {
    const auto tokens = static_cast<std::int64_t>(prompts[b].size());
    const std::int64_t number = options.first_sequence + static_cast<std::int64_t>(b) + 1;
    require<ConfigError>(tokens >= 1, "prompt ", number, " has no tokens\n  fix: a longer prompt");
    require<ConfigError>(tokens < length, "prompt ", number, " has ", tokens, " tokens, the model is for ", length,
                         ": there is no room for a new one\n  fix: a shorter prompt");
  }
}

std::vector<GeneratedSequence> generate(InferenceModel& model, const std::vector<std::vector<TokenId>>& prompts,
                                        const GeneratorOptions& options, const OnToken& on_token,
                                        GenerationSpeed* speed) {
  return Generation(model, prompts, options).run(on_token, speed);
}

}  // namespace trireme
