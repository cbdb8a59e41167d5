#include "trireme/data/sampling/synthetic.hpp"

#include <algorithm>
#include <cmath>

#include "trireme/base/error.hpp"

namespace trireme::data {
namespace {

std::uint64_t checked(std::int64_t vocab_size) {
  require<ConfigError>(2 <= vocab_size && vocab_size <= std::int64_t{1} << 32, "synthetic tokens of a vocabulary of ",
                       vocab_size, ": must be from 2 to 2^32");
  return static_cast<std::uint64_t>(vocab_size);
}

}  // namespace

SyntheticTokens::SyntheticTokens(std::uint64_t seed, std::int64_t vocab_size, std::int64_t num_tokens)
    : name_(text("synthetic(seed ", seed, ", vocab_size ", vocab_size, ")")),
      vocab_size_(vocab_size),
      num_tokens_(num_tokens),
      stream_(seed, "synthetic tokens"),
      next_(RandomStream(seed, "synthetic order"), 0, checked(vocab_size)) {
  require<ConfigError>(1 <= num_tokens && num_tokens <= std::int64_t{1} << 56, num_tokens,
                       " synthetic tokens: must be from 1 to 2^56");
}

void SyntheticTokens::read(std::int64_t first, std::span<std::uint32_t> out) const {
  const std::int64_t end = first + static_cast<std::int64_t>(out.size());
  require<DataError>(0 <= first && end <= num_tokens_, "tokens ", first, " to ", end, " of ", name_, ", which has ",
                     num_tokens_);
  if (out.empty()) return;
  const auto any = static_cast<std::uint64_t>(vocab_size_);
  std::uint32_t token = 0;
  // From the beginning of the document, because each token depends on the previous one.
  for (std::int64_t i = first - first % kDocument; i < end; ++i) {
    const std::uint64_t draw = 2 * static_cast<std::uint64_t>(i);
    if (i % kDocument != 0 && stream_.uniform(draw) < kUsual)
      token = usual_next(token);
    else
      token = static_cast<std::uint32_t>(stream_.below(draw + 1, any));
    if (i >= first) out[static_cast<std::size_t>(i - first)] = token;
  }
}

std::vector<std::int64_t> SyntheticTokens::document_ends(std::int64_t first, std::int64_t count) const {
  std::vector<std::int64_t> ends;
  for (std::int64_t end = (first / kDocument + 1) * kDocument; end <= first + count && end < num_tokens_;
       end += kDocument)
    ends.push_back(end);
  if (first < num_tokens_ && num_tokens_ <= first + count) ends.push_back(num_tokens_);
  return ends;
}

double SyntheticTokens::entropy_inside() const {
  const double others = (1 - kUsual) / static_cast<double>(vocab_size_), usual = kUsual + others;
  return -usual * std::log(usual) - static_cast<double>(vocab_size_ - 1) * others * std::log(others);
}

double SyntheticTokens::entropy_of_first() const { return std::log(static_cast<double>(vocab_size_)); }

double SyntheticTokens::entropy_per_token() const {
  const auto firsts = static_cast<double>(num_documents()), all = static_cast<double>(num_tokens_);
  return (firsts * entropy_of_first() + (all - firsts) * entropy_inside()) / all;
}

}  // namespace trireme::data
