#include "trireme/data/sampling/validation.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"

namespace trireme::data {

ValidationSet::ValidationSet(const SamplingPlan& plan, std::int64_t seq_len, std::int64_t max_samples,
                             bool whole_documents)
    : seq_len_(seq_len), whole_documents_(whole_documents) {
  check(plan);
  const std::vector<SharedTokens> sources = sources_of(plan);
  for (std::size_t i = 0; i < sources.size(); ++i)
    add(sources[i], i, hold_out(sources[i]->num_tokens(), plan.validation_fraction, plan.seed, i).validation,
        max_samples);
}

ValidationSet::ValidationSet(const std::vector<SharedTokens>& sources, std::int64_t seq_len, std::int64_t max_samples,
                             bool whole_documents)
    : seq_len_(seq_len), whole_documents_(whole_documents) {
  require<ConfigError>(!sources.empty(), "there is no data for validation");
  for (std::size_t i = 0; i < sources.size(); ++i) add(sources[i], i, {{0, sources[i]->num_tokens()}}, max_samples);
}

void ValidationSet::add(const SharedTokens& tokens, std::size_t source, const std::vector<Range>& parts,
                        std::int64_t max_samples) {
  require<ConfigError>(seq_len_ >= 1, "seq_len = ", seq_len_, ": must be at least 1");
  require<ConfigError>(0 <= max_samples && max_samples <= std::int64_t{1} << 31, "at most ", max_samples,
                       " samples of validation: must be from 0 to 2^31");
  std::int64_t held_out = 0;
  for (const Range& part : parts) held_out += part.size();
  Windows windows = whole_documents_ ? Windows::of_documents(*tokens, parts, seq_len_) : Windows(parts, seq_len_);
  require<DataError>(
      windows.size() > 0, tokens->name(), " has ", thousands(held_out), " of ", thousands(tokens->num_tokens()),
      " tokens for validation, a sample needs ", thousands(seq_len_ + 1),
      " (seq_len + 1)\n  fix: a larger validation fraction, more data to validate on, or a smaller seq_len");
  const std::int64_t num_samples = max_samples == 0 ? windows.size() : std::min(max_samples, windows.size());
  parts_.push_back({tokens, source, std::move(windows), size_, num_samples});
  size_ += num_samples;
}

std::int64_t ValidationSet::num_batches(std::int64_t micro_batch_size, std::int64_t dp) const {
  require<ConfigError>(micro_batch_size >= 1 && dp >= 1, "micro_batch_size = ", micro_batch_size, ", dp = ", dp,
                       ": each must be at least 1");
  const std::int64_t at_once = micro_batch_size * dp;
  return (size_ + at_once - 1) / at_once;
}

std::vector<Sample> ValidationSet::samples(std::int64_t batch, std::int64_t micro_batch_size, std::int64_t dp,
                                           std::int64_t dp_rank) const {
  const BatchSplit split(num_batches(micro_batch_size, dp) * micro_batch_size * dp, micro_batch_size, dp, dp_rank);
  const Range rows = split.rows(batch);
  std::vector<Sample> samples;
  for (std::int64_t row = rows.begin; row < rows.end; ++row) samples.push_back(at(row));
  return samples;
}

Sample ValidationSet::at(std::int64_t i) const {
  require(i >= 0, "sample ", i, " of validation");
  if (i >= size_) return {.row = i};
  const auto behind = std::ranges::upper_bound(parts_, i, {}, &Part::first_sample);
  const Part& part = *std::prev(behind);
  // floor(k windows / samples) without overflow: evenly spread, and consecutive if all are taken.
  const std::int64_t k = i - part.first_sample, stride = part.windows.size() / part.num_samples;
  const std::int64_t window = k * stride + k * (part.windows.size() % part.num_samples) / part.num_samples;
  const Window found = part.windows.at(window);
  return {part.tokens.get(), found.first_token, i, part.source, 0, window, found.num_tokens};
}

}  // namespace trireme::data
