#include "trireme/data/tokens/inspect.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "trireme/base/error.hpp"

namespace trireme::data {

TokenReport inspect_tokens(const TokenSource& source, const DataHooks& hooks) {
  constexpr std::int64_t kPart = std::int64_t{1} << 18;
  TokenReport report;
  report.shortest = std::numeric_limits<std::int64_t>::max();
  report.min_id = std::numeric_limits<std::uint32_t>::max();
  std::vector<std::uint32_t> ids;
  std::vector<std::uint8_t> mask;
  std::int64_t begin = 0;
  for (std::int64_t first = 0; first < source.num_tokens(); first += kPart) {
    if (hooks.stopped()) throw Interrupted("interrupted");
    const std::int64_t count = std::min(kPart, source.num_tokens() - first);
    ids.resize(static_cast<std::size_t>(count));
    source.read(first, ids);
    const auto [low, high] = std::ranges::minmax(ids);
    report.min_id = std::min(report.min_id, low);
    report.max_id = std::max(report.max_id, high);
    for (const std::int64_t end : source.document_ends(first, count)) {
      const std::int64_t length = end - begin;
      begin = end;
      ++report.num_documents;
      report.shortest = std::min(report.shortest, length);
      report.longest = std::max(report.longest, length);
      ++report.lengths[static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(length)) - 1)];
    }
    if (source.has_loss_mask()) {
      mask.resize(ids.size());
      source.read_loss_mask(first, mask);
      report.counting_tokens = std::accumulate(mask.begin(), mask.end(), report.counting_tokens);
    } else {
      report.counting_tokens += count;
    }
    hooks.progress({static_cast<std::uint64_t>(first), static_cast<std::uint64_t>(source.num_tokens()), 0, 0, first});
  }
  return report;
}

std::vector<ShownDocument> first_documents(const TokenSource& source, std::int64_t count, std::int64_t max_tokens) {
  constexpr std::int64_t kPart = std::int64_t{1} << 16;
  std::vector<ShownDocument> shown;
  std::int64_t begin = 0;
  for (std::int64_t first = 0; first < source.num_tokens(); first += kPart)
    for (const std::int64_t end : source.document_ends(first, std::min(kPart, source.num_tokens() - first))) {
      if (std::ssize(shown) >= count) return shown;
      ShownDocument document{.num_tokens = end - begin, .ids = {}, .loss_mask = {}};
      document.ids.resize(static_cast<std::size_t>(std::min(end - begin, max_tokens)));
      source.read(begin, document.ids);
      if (source.has_loss_mask()) {
        document.loss_mask.resize(document.ids.size());
        source.read_loss_mask(begin, document.loss_mask);
      }
      shown.push_back(std::move(document));
      begin = end;
    }
  return shown;
}

}  // namespace trireme::data
