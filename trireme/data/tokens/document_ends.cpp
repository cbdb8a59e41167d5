#include "trireme/data/tokens/document_ends.hpp"

#include <algorithm>
#include <utility>

#include "trireme/base/error.hpp"

namespace trireme::data {

IndexedEnds::IndexedEnds(std::int64_t count, std::int64_t num_tokens, Load load, const std::string& shown)
    : count_(count), load_(std::move(load)) {
  std::int64_t previous = 0;
  for (std::int64_t first = 0; first < count; first += kStride) {
    const std::vector<std::int64_t> ends = block(first / kStride);
    firsts_.push_back(ends.front());
    for (std::size_t i = 0; i < ends.size(); ++i) {
      if (ends[i] < previous || ends[i] > num_tokens)
        throw DataError(text(shown, ": document ", first + static_cast<std::int64_t>(i), " ends at token ",
                             static_cast<std::uint64_t>(ends[i]), ", the one before at ", previous,
                             "; ends must ascend, to at most ", num_tokens, " tokens",
                             "\n  fix: fetch the data again; this index is damaged or of other tokens"));
      previous = ends[i];
    }
  }
  require<DataError>(previous == num_tokens, shown, ": the last of ", count, " documents ends at token ", previous,
                     ", but there are ", num_tokens, " tokens; it must end with them",
                     "\n  fix: fetch the data again; this index is cut short or of other tokens");
}

std::vector<std::int64_t> IndexedEnds::block(std::int64_t number) const {
  std::vector<std::int64_t> ends(static_cast<std::size_t>(std::min(kStride, count_ - number * kStride)));
  load_(number * kStride, ends);
  return ends;
}

std::vector<std::int64_t> IndexedEnds::within(std::int64_t first, std::int64_t count) const {
  std::vector<std::int64_t> found;
  // The last block that begins at or before `first` is the first that can contain an end after it.
  const auto later = std::ranges::upper_bound(firsts_, first) - firsts_.begin();
  for (std::int64_t number = std::max<std::int64_t>(later - 1, 0); number * kStride < count_; ++number) {
    for (const std::int64_t end : block(number)) {
      if (end > first + count) return found;
      if (end > first && (found.empty() || found.back() != end)) found.push_back(end);
    }
  }
  return found;
}

std::int64_t IndexedEnds::until(std::int64_t position) const {
  const auto later = std::ranges::upper_bound(firsts_, position) - firsts_.begin();
  if (later == 0) return 0;
  const std::vector<std::int64_t> ends = block(later - 1);
  return (later - 1) * kStride + (std::ranges::upper_bound(ends, position) - ends.begin());
}

void MarkedEnds::each_end(std::int64_t first, std::int64_t count, const std::function<void(std::int64_t)>& body) const {
  const std::int64_t last = first + count;
  if (mark_) {
    std::vector<std::uint32_t> part(static_cast<std::size_t>(std::min<std::int64_t>(count, 1 << 16)));
    for (std::int64_t at = first; at < last;) {
      const auto ids = std::span(part).first(static_cast<std::size_t>(std::min<std::int64_t>(last - at, 1 << 16)));
      tokens_->read(at, ids);
      for (const std::uint32_t id : ids) {
        ++at;
        if (id == *mark_ && at < tokens_->size()) body(at);
      }
    }
  }
  if (count > 0 && last == tokens_->size()) body(last);
}

std::int64_t MarkedEnds::count() const {
  std::call_once(counted_, [&] { each_end(0, tokens_->size(), [&](std::int64_t) { ++count_; }); });
  return count_;
}

std::vector<std::int64_t> MarkedEnds::within(std::int64_t first, std::int64_t count) const {
  std::vector<std::int64_t> found;
  each_end(first, count, [&](std::int64_t end) { found.push_back(end); });
  return found;
}

std::int64_t MarkedEnds::until(std::int64_t position) const {
  std::int64_t documents = 0;
  each_end(0, position, [&](std::int64_t) { ++documents; });
  return documents;
}

}  // namespace trireme::data
