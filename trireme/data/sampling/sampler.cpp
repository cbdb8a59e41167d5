#include "trireme/data/sampling/sampler.hpp"

#include <algorithm>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/data/sampling/permutation.hpp"

namespace trireme::data {
namespace {

constexpr std::int64_t kMaxDraws = std::int64_t{1} << 60;

/// The index of the stage of `step`: the last stage that starts at or before it.
template <class Stages>
std::size_t stage_of(const Stages& stages, std::int64_t step) {
  const auto behind = std::ranges::find_if(stages, [&](const auto& stage) { return stage.start_step > step; });
  return static_cast<std::size_t>(behind - stages.begin()) - 1;
}

void require_a_window(const Windows& windows, const TokenSource& tokens, std::int64_t seq_len, double held_out) {
  require<DataError>(
      windows.size() > 0, tokens.name(), " has ", thousands(tokens.num_tokens()), " tokens, a sample needs ",
      thousands(seq_len + 1), " (seq_len + 1)",
      held_out > 0 ? text(" in one piece, apart from what is held out for validation (", held_out, ")") : "",
      held_out > 0 ? "\n  fix: a smaller validation.fraction, or seq_len below " : "\n  fix: seq_len below ",
      thousands(std::max<std::int64_t>(tokens.num_tokens(), 1)), ", or join it with more data");
}

}  // namespace

BatchSplit::BatchSplit(std::int64_t global_batch_size, std::int64_t micro_batch_size, std::int64_t dp,
                       std::int64_t dp_rank)
    : micro_batch_size_(micro_batch_size), dp_(dp), dp_rank_(dp_rank), num_microbatches_(0) {
  require<ConfigError>(global_batch_size >= 1 && micro_batch_size >= 1 && dp >= 1,
                       "global_batch_size = ", global_batch_size, ", micro_batch_size = ", micro_batch_size,
                       ", dp = ", dp, ": each must be at least 1");
  require<ConfigError>(0 <= dp_rank && dp_rank < dp, "dp rank ", dp_rank, ": dp = ", dp, " has ranks 0 to ", dp - 1);
  // Divided step by step: the product may overflow.
  const bool whole = global_batch_size % micro_batch_size == 0 && global_batch_size / micro_batch_size % dp == 0;
  require<ConfigError>(whole, "global_batch_size = ", global_batch_size, " is not micro_batch_size ", micro_batch_size,
                       " x dp ", dp, " x a whole number\n  fix: a multiple of both, or another micro_batch_size");
  num_microbatches_ = global_batch_size / micro_batch_size / dp;
}

Range BatchSplit::rows(std::int64_t microbatch) const {
  require(0 <= microbatch && microbatch < num_microbatches_, "microbatch ", microbatch, " of ", num_microbatches_);
  const std::int64_t begin = (microbatch * dp_ + dp_rank_) * micro_batch_size_;
  return {begin, begin + micro_batch_size_};
}

Sampler::Sampler(SamplingPlan plan, DataPosition from) : plan_(std::move(plan)), from_(std::move(from)) {
  check(plan_);
  check_position();
  const std::vector<SharedTokens> sources = sources_of(plan_);
  for (std::size_t i = 0; i < plan_.stages.size(); ++i) stages_.push_back(make_stage(i, sources));
}

void Sampler::check_position() const {
  require<CheckpointError>(from_.step >= 0, "the checkpoint's step is ", from_.step);
  const std::size_t begun = from_.step == 0 ? 0 : stage_of(plan_.stages, from_.step) + 1;
  require<CheckpointError>(from_.consumed.size() == begun, "the checkpoint of step ", from_.step, " has samples of ",
                           from_.consumed.size(), " data stages; by the config ", begun,
                           " have begun by then\n  fix: do not move the start of a stage that has begun");
  for (const std::int64_t consumed : from_.consumed)
    require<CheckpointError>(0 <= consumed && consumed <= kMaxDraws, "the checkpoint has consumed ", consumed,
                             " samples of a data stage: must be from 0 to 2^60");
}

Sampler::Stage Sampler::make_stage(std::size_t number, const std::vector<SharedTokens>& sources) const {
  const SamplingStage& stage = plan_.stages[number];
  std::vector<double> weights;
  for (const MixedSource& source : stage.sources) weights.push_back(source.weight);
  Stage made{stage.start_step,
             stage.seq_len,
             stage.start_step,
             0,
             Mixture(weights, RandomStream(plan_.seed, text("mixture ", number))),
             {}};
  if (number < from_.consumed.size()) {
    made.origin_step = from_.step + 1;
    made.origin_draws = from_.consumed[number];
  }
  for (const MixedSource& mixed : stage.sources) {
    const std::size_t source = place_of(*mixed.tokens, sources);
    const TokenParts parts = hold_out(mixed.tokens->num_tokens(), plan_.validation_fraction, plan_.seed, source);
    Order order{mixed.tokens.get(), source, RandomStream(plan_.seed, text("shuffle ", source)),
                stage.whole_documents ? Windows::of_documents(*mixed.tokens, parts.train, stage.seq_len)
                                      : Windows(parts.train, stage.seq_len),
                0};
    require_a_window(order.windows, *mixed.tokens, stage.seq_len, plan_.validation_fraction);
    // Windows with another seq_len are different samples: their order starts from the beginning.
    for (std::size_t earlier = 0; earlier < number; ++earlier) {
      if (stages_[earlier].seq_len != stage.seq_len || plan_.stages[earlier].whole_documents != stage.whole_documents)
        continue;
      const std::vector<Order>& orders = stages_[earlier].orders;
      for (std::size_t i = 0; i < orders.size(); ++i)
        if (orders[i].source == source) order.draws_before += stages_[earlier].mixture.count(i, draws_of(earlier));
    }
    made.orders.push_back(std::move(order));
  }
  return made;
}

std::size_t Sampler::stage_at(std::int64_t step) const {
  require<ConfigError>(step > from_.step, "step ", step, " of the data: the run continues after step ", from_.step);
  return stage_of(stages_, step);
}

std::int64_t Sampler::draws_before(std::size_t stage, std::int64_t step) const {
  std::int64_t draws = 0;
  const bool fits = !__builtin_mul_overflow(step - stages_[stage].origin_step, plan_.global_batch_size, &draws) &&
                    !__builtin_add_overflow(draws, stages_[stage].origin_draws, &draws) && draws <= kMaxDraws;
  require<ConfigError>(fits, "step ", step, " with training.global_batch_size = ", plan_.global_batch_size,
                       ": more than 2^60 samples");
  return draws;
}

std::int64_t Sampler::draws_of(std::size_t stage) const {
  // The checkpoint's stages may have ended already.
  if (stage + 1 < from_.consumed.size()) return from_.consumed[stage];
  return draws_before(stage, plan_.stages[stage + 1].start_step);
}

std::vector<Sample> Sampler::samples(std::int64_t step, Range rows) const {
  const Stage& stage = stages_[stage_at(step)];
  require(0 <= rows.begin && rows.begin <= rows.end && rows.end <= plan_.global_batch_size, "rows ", rows.begin, " to ",
          rows.end, " of a global batch of ", plan_.global_batch_size);
  const std::int64_t first_draw = draws_before(stage_of(stages_, step), step);
  std::vector<Sample> samples;
  samples.reserve(static_cast<std::size_t>(rows.size()));
  const Order* shuffled_order = nullptr;
  std::int64_t shuffled_epoch = 0;
  Permutation shuffled(stage.orders.front().shuffle, 0, 1);
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const Mixture::Draw draw = stage.mixture.draw(first_draw + row);
    const Order& order = stage.orders[draw.source];
    const std::int64_t index = order.draws_before + draw.index, num_windows = order.windows.size();
    const std::int64_t epoch = index / num_windows;
    // Cached: neighbours mostly share it, and constructing one costs more than using it.
    if (shuffled_order != &order || shuffled_epoch != epoch) {
      shuffled = Permutation(order.shuffle, static_cast<std::uint64_t>(epoch), static_cast<std::uint64_t>(num_windows));
      shuffled_order = &order;
      shuffled_epoch = epoch;
    }
    const auto window = static_cast<std::int64_t>(shuffled(static_cast<std::uint64_t>(index - epoch * num_windows)));
    const Window found = order.windows.at(window);
    samples.push_back({order.tokens, found.first_token, row, order.source, epoch, window, found.num_tokens});
  }
  return samples;
}

std::int64_t Sampler::seq_len(std::int64_t step) const { return stages_[stage_at(step)].seq_len; }

DataPosition Sampler::position(std::int64_t step) const {
  if (step == from_.step) return from_;
  const std::size_t now = stage_at(step);
  DataPosition position{step, {}};
  for (std::size_t stage = 0; stage < now; ++stage) position.consumed.push_back(draws_of(stage));
  position.consumed.push_back(draws_before(now, step + 1));
  return position;
}

std::int64_t Sampler::windows_per_epoch(std::int64_t step, std::size_t source) const {
  for (const Order& order : stages_[stage_at(step)].orders)
    if (order.source == source) return order.windows.size();
  return 0;
}

std::int64_t Sampler::num_cut_documents() const {
  std::int64_t cut = 0;
  for (const Stage& stage : stages_)
    for (const Order& order : stage.orders) cut += order.windows.num_cut();
  return cut;
}

}  // namespace trireme::data
