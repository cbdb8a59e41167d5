#include "trireme/data/sampling/batch.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "trireme/base/error.hpp"
#include "trireme/data/tokens/lanes.hpp"
#include "trireme/data/tokens/token_checks.hpp"

namespace trireme::data {
namespace {

/// A whole sample, before it is split over cp.
struct Row {
  std::vector<std::uint32_t> tokens;       // S + 1
  std::vector<std::uint8_t> mask;          // S + 1: one per token
  std::vector<std::int64_t> borders;       // positions in (0, S) where a document begins
  bool padding = false, all_count = true;  // all_count: no token is masked, mask is not filled
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
  const std::int64_t count = sample.num_tokens < 0 ? seq_len + 1 : sample.num_tokens;
  const std::span<std::uint32_t> own = std::span(row.tokens).first(static_cast<std::size_t>(count));
  sample.tokens->read(sample.first_token, own);
  check_vocabulary(*sample.tokens, sample.first_token, own, options.vocab_size);
  row.all_count = !sample.tokens->has_loss_mask() && count == seq_len + 1;
  if (!row.all_count) {
    const std::span<std::uint8_t> mask = std::span(row.mask).first(own.size());
    if (sample.tokens->has_loss_mask())
      sample.tokens->read_loss_mask(sample.first_token, mask);
    else
      std::ranges::fill(mask, 1);
    std::fill(row.tokens.begin() + count, row.tokens.end(), 0);  // padding
    std::fill(row.mask.begin() + count, row.mask.end(), 0);
  }
  if (options.attend_across_documents && !options.restart_positions) return;
  for (const std::int64_t end : sample.tokens->document_ends(sample.first_token, std::min(count, seq_len))) {
    const std::int64_t place = end - sample.first_token;
    // An empty document ends where the one before it does.
    if (!row.borders.empty() && row.borders.back() == place) continue;
    if (place < seq_len) row.borders.push_back(place);
    row.last_label_is_next_document = place == seq_len;
  }
  // Padding is by itself, also behind a document that goes on in another sample.
  if (count < seq_len && (row.borders.empty() || row.borders.back() < count)) row.borders.push_back(count);
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

/// The destination of this cp rank's part of a row in the batch.
struct Place {
  Range range;        // of the sample
  std::size_t index;  // of its first token in [b, s]
  std::size_t size() const { return static_cast<std::size_t>(range.size()); }
};

/// The number of ones in a mask of ones and zeros.
std::int64_t ones(const std::uint8_t* mask, std::size_t count) {
  std::int64_t sum = 0;
  for (; count >= 8; count -= 8, mask += 8) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, mask, sizeof eight);
    sum += static_cast<std::int64_t>((eight * 0x0101010101010101) >> 56);  // the sum of its bytes
  }
  return std::accumulate(mask, mask + count, sum);
}

void write_mask(const Row& row, const Place& place, const BatchOptions& options, std::int64_t seq_len,
                TokenBatch& out) {
  std::uint8_t* const mask = out.loss_mask.data() + place.index;
  std::int64_t valid = place.range.size();
  if (row.all_count) {
    std::fill_n(mask, place.size(), std::uint8_t{1});
  } else {
    std::copy_n(row.mask.data() + place.range.begin + 1, place.size(), mask);
    valid = ones(mask, place.size());
  }
  const auto leave_out = [&](std::int64_t in_sample) {
    std::uint8_t& counts = mask[in_sample - place.range.begin];
    valid -= counts;
    counts = 0;
  };
  if (!options.attend_across_documents) {
    for (const std::int64_t border : row.borders)
      if (place.range.begin < border && border <= place.range.end) leave_out(border - 1);
    if (row.last_label_is_next_document && place.range.end == seq_len) leave_out(seq_len - 1);
  }
  out.num_valid_labels += valid;
}

void write_positions(const Row& row, const Place& place, const BatchOptions& options, TokenBatch& out) {
  const auto at = [&](std::int64_t in_sample) {
    return place.index + static_cast<std::size_t>(in_sample - place.range.begin);
  };
  if (options.restart_positions) {
    for_each_piece(place.range, row.borders, [&](Range piece, std::ptrdiff_t document) {
      const std::int64_t start = document == 0 ? 0 : row.borders[static_cast<std::size_t>(document - 1)];
      write_counted(piece.begin - start, static_cast<std::size_t>(piece.size()),
                    out.positions.data() + at(piece.begin));
    });
    write_counted(place.range.begin, place.size(), out.places.data() + place.index);
  } else {
    write_counted(place.range.begin, place.size(), out.positions.data() + place.index);
  }
}

void write_documents(const Row& row, std::size_t first, std::int64_t seq_len, TokenBatch& out) {
  for_each_piece({0, seq_len}, row.borders, [&](Range piece, std::ptrdiff_t document) {
    std::fill_n(out.documents.data() + first + piece.begin, piece.size(), static_cast<std::int32_t>(document));
  });
}

/// Resizes `out`. Elements are not cleared: all are overwritten.
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
  out.places.resize(options.restart_positions ? count : 0);
  out.documents.resize(options.attend_across_documents ? 0 : num_samples * static_cast<std::size_t>(seq_len));
  out.rows.resize(num_samples);
  out.sequence_starts.clear();
  out.num_valid_labels = 0;
}

}  // namespace

BatchMaker::BatchMaker(BatchOptions options) : options_(options) {
  require<ConfigError>(options_.vocab_size >= 1, "model.vocab_size = ", options_.vocab_size, ": must be at least 1");
  options_.context.tokens(0, options_.cp_rank);  // validates the rank
}

void BatchMaker::make(std::span<const Sample> samples, std::int64_t seq_len, TokenBatch& out) const {
  const std::vector<Range> mine = options_.context.tokens(seq_len, options_.cp_rank);
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
    if (!options_.attend_across_documents) {
      for (const std::int64_t border : row.borders)
        out.sequence_starts.push_back(static_cast<std::int32_t>(first + border));
      write_documents(row, static_cast<std::size_t>(first), seq_len, out);
    }
    for (const Range& range : mine) {
      const Place place{range, index};
      write_tokens_and_labels(row.tokens.data() + range.begin, place.size(), out.tokens.data() + index,
                              out.labels.data() + index);
      write_mask(row, place, options_, seq_len, out);
      write_positions(row, place, options_, out);
      index += place.size();
    }
  }
  out.sequence_starts.push_back(static_cast<std::int32_t>(out.num_samples * seq_len));
}

}  // namespace trireme::data
