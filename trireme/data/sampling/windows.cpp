#include "trireme/data/sampling/windows.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/base/philox.hpp"

namespace trireme::data {

TokenParts hold_out(std::int64_t num_tokens, double fraction, std::uint64_t seed, std::size_t source) {
  // 2^56: does not overflow when multiplied by the number of segments.
  require<DataError>(0 <= num_tokens && num_tokens <= std::int64_t{1} << 56, num_tokens,
                     " tokens in a source: must be at most 2^56");
  require<ConfigError>(0 <= fraction && fraction < 1, "validation fraction = ", fraction,
                       ": must be from 0 to below 1");
  const auto held = static_cast<std::int64_t>(fraction * static_cast<double>(num_tokens));
  if (held == 0) return {.train = {{0, num_tokens}}, .validation = {}};
  const std::int64_t segments = std::clamp<std::int64_t>(held / kHeldOutRange, 1, kMaxHeldOutRanges);
  const RandomStream stream(seed, text("hold out ", source));
  TokenParts parts;
  std::int64_t train_from = 0;
  for (std::int64_t i = 0; i < segments; ++i) {
    const Range segment{num_tokens * i / segments, num_tokens * (i + 1) / segments};
    const std::int64_t length = held * (i + 1) / segments - held * i / segments;
    const auto room = static_cast<std::uint64_t>(segment.size() - length);
    const std::int64_t begin =
        segment.begin + static_cast<std::int64_t>(stream.below(static_cast<std::uint64_t>(i), room + 1));
    if (train_from < begin) parts.train.push_back({train_from, begin});
    parts.validation.push_back({begin, begin + length});
    train_from = begin + length;
  }
  if (train_from < num_tokens) parts.train.push_back({train_from, num_tokens});
  return parts;
}

Windows::Windows(const std::vector<Range>& parts, std::int64_t seq_len) : seq_len_(seq_len) {
  require(seq_len >= 1, "windows of seq_len = ", seq_len);
  for (const Range& part : parts) {
    const std::int64_t windows = (part.size() - 1) / seq_len;
    if (windows <= 0) continue;
    parts_.push_back({size_, part.begin});
    size_ += windows;
  }
}

namespace {

constexpr std::int64_t kDocumentsAtOnce = 1 << 20;  // tokens whose document ends are read together

/// Calls f(document) for each document of `part`; those that cross its borders are cut there.
template <class F>
void each_document(const TokenSource& tokens, Range part, const F& f) {
  std::int64_t begin = part.begin;
  const auto end_at = [&](std::int64_t end) {
    if (begin < end) f(Range{begin, end});
    begin = end;
  };
  for (std::int64_t at = part.begin; at < part.end; at += kDocumentsAtOnce)
    for (const std::int64_t end : tokens.document_ends(at, std::min(kDocumentsAtOnce, part.end - at))) end_at(end);
  end_at(part.end);
}

}  // namespace

Windows Windows::of_documents(const TokenSource& tokens, const std::vector<Range>& parts, std::int64_t seq_len) {
  require(seq_len >= 1, "windows of seq_len = ", seq_len);
  Windows out(seq_len);
  Range open{0, 0};  // the documents of the window that is not full yet
  const auto close = [&] {
    if (open.size() > 1) out.packed_.push_back({open.begin, open.size()});  // one token has no label
    open = {0, 0};
  };
  for (const Range& part : parts) {
    each_document(tokens, part, [&](Range document) {
      if (open.size() > 0 && document.end - open.begin <= seq_len + 1) {
        open.end = document.end;
        return;
      }
      close();
      if (document.size() > seq_len + 1) ++out.num_cut_;
      for (; document.size() > seq_len + 1; document.begin += seq_len)
        out.packed_.push_back({document.begin, seq_len + 1});
      open = document;
    });
    close();  // the next part is elsewhere
  }
  out.size_ = static_cast<std::int64_t>(out.packed_.size());
  return out;
}

Window Windows::at(std::int64_t window) const {
  require(0 <= window && window < size_, "window ", window, " of ", size_);
  if (!packed_.empty()) return packed_[static_cast<std::size_t>(window)];
  const auto behind = std::ranges::upper_bound(parts_, window, {}, &Part::first_window);
  const Part& part = *std::prev(behind);
  return {part.first_token + (window - part.first_window) * seq_len_, -1};
}

}  // namespace trireme::data
