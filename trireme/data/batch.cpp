#include "trireme/data/batch.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"

namespace trireme {
namespace {

// Loops over blocks of a fixed size: at -O2 GCC makes vector code of those alone.
constexpr std::size_t kBlock = 16;

void widen(const std::uint32_t* __restrict from, std::size_t count, std::int64_t* __restrict to) {
  for (; count >= kBlock; count -= kBlock, from += kBlock, to += kBlock)
    for (std::size_t i = 0; i < kBlock; ++i) to[i] = from[i];
  for (std::size_t i = 0; i < count; ++i) to[i] = from[i];
}

std::uint32_t largest(std::span<const std::uint32_t> tokens) {
  std::uint32_t maxima[kBlock] = {};
  std::size_t first = 0;
  for (; first + kBlock <= tokens.size(); first += kBlock)
    for (std::size_t i = 0; i < kBlock; ++i) maxima[i] = std::max(maxima[i], tokens[first + i]);
  for (; first < tokens.size(); ++first) maxima[0] = std::max(maxima[0], tokens[first]);
  return *std::ranges::max_element(maxima);
}

/// An index outside of an embedding is an error nobody understands, on a GPU one that ends the process.
void require_known(const Sample& sample, std::span<const std::uint32_t> tokens, std::int64_t vocab_size) {
  if (largest(tokens) < vocab_size) return;
  const auto unknown = std::ranges::find_if(tokens, [&](std::uint32_t token) { return token >= vocab_size; });
  const std::string made_by = sample.tokens->tokenizer_fingerprint();
  throw DataError(text("token ", thousands(*unknown), " at position ",
                       thousands(sample.first_token + (unknown - tokens.begin())), " of ", sample.tokens->name(),
                       " is outside the vocabulary (vocab_size = ", thousands(vocab_size), ")",
                       made_by.empty() ? "" : "\n  its tokens were made by the tokenizer " + made_by,
                       "\n  fix: the model.vocab_size of the tokenizer that made the data, or prepare the data again"));
}

/// A whole sample, before it is cut over cp.
struct Row {
  std::vector<std::uint32_t> tokens;       // S + 1
  std::vector<std::uint8_t> mask;          // S + 1: of the tokens
  std::vector<std::int64_t> borders;       // places in (0, S) where a document begins
  bool padding = false, all_count = true;  // all_count: mask is not filled
  bool last_label_is_next_document = false;
};

void read(const Sample& sample, std::int64_t seq_len, const BatchOptions& options, Row& row) {
  row.padding = sample.tokens == nullptr;
  row.borders.clear();
  row.last_label_is_next_document = false;
  if (row.padding) {
    std::ranges::fill(row.tokens, 0);
    std::ranges::fill(row.mask, 0);
    row.all_count = false;
    return;
  }
  sample.tokens->read(sample.first_token, row.tokens);
  require_known(sample, row.tokens, options.vocab_size);
  row.all_count = !sample.tokens->has_loss_mask();
  if (!row.all_count) sample.tokens->read_loss_mask(sample.first_token, row.mask);
  if (options.attend_across_documents && !options.restart_positions) return;
  for (const std::int64_t end : sample.tokens->document_ends(sample.first_token, seq_len)) {
    const std::int64_t place = end - sample.first_token;
    // An empty document ends where the one before it does.
    if (!row.borders.empty() && row.borders.back() == place) continue;
    if (place < seq_len) row.borders.push_back(place);
    row.last_label_is_next_document = place == seq_len;
  }
}

/// Calls visit(places, document) for the parts of `range` between borders.
template <class Visit>
void for_each_piece(Range range, const std::vector<std::int64_t>& borders, Visit visit) {
  auto next = std::ranges::upper_bound(borders, range.begin);
  while (range.size() > 0) {
    const std::int64_t end = next == borders.end() ? range.end : std::min(*next, range.end);
    visit(Range{range.begin, end}, next - borders.begin());
    range.begin = end;
    if (next != borders.end()) ++next;
  }
}

/// Where this cp rank's part of a row goes in the batch.
struct Place {
  Range range;        // of the sample
  std::size_t index;  // of its first token in [b, s]
  std::size_t size() const { return static_cast<std::size_t>(range.size()); }
};

void write_mask(const Row& row, const Place& place, const BatchOptions& options, std::int64_t seq_len,
                TokenBatch& out) {
  std::uint8_t* const mask = out.loss_mask.data() + place.index;
  if (row.all_count)
    std::fill_n(mask, place.size(), std::uint8_t{1});
  else
    std::copy_n(row.mask.data() + place.range.begin + 1, place.size(), mask);
  if (!options.attend_across_documents) {
    for (const std::int64_t border : row.borders)
      if (place.range.begin < border && border <= place.range.end) mask[border - 1 - place.range.begin] = 0;
    if (row.last_label_is_next_document && place.range.end == seq_len) mask[place.size() - 1] = 0;
  }
  if (row.all_count && options.attend_across_documents)
    out.num_valid_labels += place.range.size();
  else
    out.num_valid_labels += std::accumulate(mask, mask + place.size(), std::int64_t{0});
}

void write_documents(const Row& row, const Place& place, const BatchOptions& options, TokenBatch& out) {
  const auto at = [&](std::int64_t in_sample) {
    return place.index + static_cast<std::size_t>(in_sample - place.range.begin);
  };
  if (options.restart_positions) {
    for_each_piece(place.range, row.borders, [&](Range piece, std::ptrdiff_t document) {
      const std::int64_t start = document == 0 ? 0 : row.borders[static_cast<std::size_t>(document - 1)];
      for (std::int64_t i = piece.begin; i < piece.end; ++i) out.positions[at(i)] = i - start;
    });
  } else {
    std::iota(out.positions.begin() + static_cast<std::ptrdiff_t>(place.index),
              out.positions.begin() + static_cast<std::ptrdiff_t>(place.index + place.size()), place.range.begin);
  }
  if (options.attend_across_documents) return;
  for_each_piece(place.range, row.borders, [&](Range piece, std::ptrdiff_t document) {
    for (std::int64_t i = piece.begin; i < piece.end; ++i) out.documents[at(i)] = static_cast<std::int32_t>(document);
  });
}

/// Sizes `out`. Elements are not cleared: all are written.
void shape(std::size_t num_samples, std::int64_t seq_len, std::int64_t local_length, const BatchOptions& options,
           TokenBatch& out) {
  const std::size_t count = num_samples * static_cast<std::size_t>(local_length);
  out.num_samples = static_cast<std::int64_t>(num_samples);
  out.seq_len = seq_len;
  out.local_length = local_length;
  out.tokens.resize(count);
  out.labels.resize(count);
  out.loss_mask.resize(count);
  out.positions.resize(count);
  out.documents.resize(options.attend_across_documents ? 0 : count);
  out.rows.resize(num_samples);
  out.sequence_starts.clear();
  out.num_valid_labels = 0;
}

}  // namespace

BatchMaker::BatchMaker(BatchOptions options) : options_(options) {
  require<ConfigError>(options_.vocab_size >= 1, "model.vocab_size = ", options_.vocab_size, ": must be at least 1");
  tokens_over_cp(0, options_.cp, options_.cp_rank, options_.cp_split);  // checks the rank
}

void BatchMaker::make(std::span<const Sample> samples, std::int64_t seq_len, TokenBatch& out) const {
  const std::vector<Range> mine = tokens_over_cp(seq_len, options_.cp, options_.cp_rank, options_.cp_split);
  require<ConfigError>(static_cast<std::int64_t>(samples.size()) <=
                           std::numeric_limits<std::int32_t>::max() / std::max<std::int64_t>(seq_len, 1),
                       samples.size(), " samples of ", seq_len, " tokens: a microbatch has at most 2^31 - 1 tokens");
  std::int64_t local_length = 0;
  for (const Range& range : mine) local_length += range.size();
  shape(samples.size(), seq_len, local_length, options_, out);

  Row row;
  row.tokens.resize(static_cast<std::size_t>(seq_len + 1));
  row.mask.resize(static_cast<std::size_t>(seq_len + 1));
  std::size_t index = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    read(samples[i], seq_len, options_, row);
    out.rows[i] = samples[i].row;
    const std::int64_t first = static_cast<std::int64_t>(i) * seq_len;
    out.sequence_starts.push_back(static_cast<std::int32_t>(first));
    if (!options_.attend_across_documents)
      for (const std::int64_t border : row.borders)
        out.sequence_starts.push_back(static_cast<std::int32_t>(first + border));
    for (const Range& range : mine) {
      const Place place{range, index};
      widen(row.tokens.data() + range.begin, place.size(), out.tokens.data() + index);
      widen(row.tokens.data() + range.begin + 1, place.size(), out.labels.data() + index);
      write_mask(row, place, options_, seq_len, out);
      write_documents(row, place, options_, out);
      index += place.size();
    }
  }
  out.sequence_starts.push_back(static_cast<std::int32_t>(out.num_samples * seq_len));
}

}  // namespace trireme
