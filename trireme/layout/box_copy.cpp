#include "trireme/layout/box_copy.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

std::int64_t elements_of(const Box& box) {
  std::int64_t count = 1;
  for (const Range& side : box) count *= side.size();
  return count;
}

/// Elements from one index of a dim to the next.
std::vector<std::int64_t> strides_of(const Box& box) {
  std::vector<std::int64_t> out(box.size(), 1);
  for (std::size_t d = box.size(); d-- > 1;) out[d - 1] = out[d] * box[d].size();
  return out;
}

std::int64_t place(const Box& inner, const Box& outer, const std::vector<std::int64_t>& strides) {
  std::int64_t out = 0;
  for (std::size_t d = 0; d < outer.size(); ++d) out += (inner[d].begin - outer[d].begin) * strides[d];
  return out;
}

/// The first dim of those that form one run of elements: all behind it are whole in `outer`.
std::size_t first_dim_of_run(const Box& inner, const Box& outer) {
  std::size_t d = inner.size();
  while (d > 0 && (d == inner.size() || inner[d] == outer[d])) --d;
  return d;
}

}  // namespace

std::optional<Box> intersection(const Box& a, const Box& b) {
  require(a.size() == b.size(), "boxes of ", a.size(), " and ", b.size(), " dims have nothing in common");
  Box out(a.size());
  for (std::size_t d = 0; d < a.size(); ++d) {
    out[d] = {std::max(a[d].begin, b[d].begin), std::min(a[d].end, b[d].end)};
    if (out[d].begin >= out[d].end) return std::nullopt;
  }
  return out;
}

std::optional<std::int64_t> contiguous_offset(const Box& inner, const Box& outer) {
  if (intersection(inner, outer) != inner) return std::nullopt;
  const std::size_t run = first_dim_of_run(inner, outer);
  for (std::size_t d = 0; d < run; ++d)
    if (inner[d].size() != 1) return std::nullopt;
  return place(inner, outer, strides_of(outer));
}

std::optional<std::pair<std::size_t, std::size_t>> overlapping(std::span<const Box> boxes) {
  // Sorted by the first dim, a box meets few others.
  const auto begin = [&](std::size_t i) { return boxes[i].empty() ? 0 : boxes[i].front().begin; };
  std::vector<std::size_t> sorted(boxes.size());
  std::iota(sorted.begin(), sorted.end(), std::size_t{0});
  std::ranges::sort(sorted, {}, begin);
  for (std::size_t i = 0; i < sorted.size(); ++i)
    for (std::size_t j = i + 1; j < sorted.size(); ++j) {
      const Box &a = boxes[sorted[i]], &b = boxes[sorted[j]];
      if (!a.empty() && b.front().begin >= a.front().end) break;
      if (intersection(a, b)) return std::pair(sorted[i], sorted[j]);
    }
  return std::nullopt;
}

Box relative_to(const Box& box, const Box& outer) {
  Box result;
  for (std::size_t d = 0; d < box.size(); ++d)
    result.push_back({box[d].begin - outer[d].begin, box[d].end - outer[d].begin});
  return result;
}

void copy_box(std::span<const std::byte> from, const Box& from_box, std::span<std::byte> to, const Box& to_box,
              const Box& common, std::size_t element_bytes) {
  const auto bytes = [&](std::int64_t elements) { return static_cast<std::size_t>(elements) * element_bytes; };
  require(from.size() == bytes(elements_of(from_box)) && to.size() == bytes(elements_of(to_box)), "a box of ",
          str(from_box), " in ", from.size(), " bytes is copied to ", str(to_box), " in ", to.size());
  require(intersection(common, from_box) == common && intersection(common, to_box) == common, str(common),
          " is not in both ", str(from_box), " and ", str(to_box));
  const std::vector<std::int64_t> from_strides = strides_of(from_box), to_strides = strides_of(to_box);
  const std::size_t outer = std::max(first_dim_of_run(common, from_box), first_dim_of_run(common, to_box));
  std::int64_t run = 1;
  for (std::size_t d = outer; d < common.size(); ++d) run *= common[d].size();

  const std::byte* source = from.data() + bytes(place(common, from_box, from_strides));
  std::byte* target = to.data() + bytes(place(common, to_box, to_strides));
  std::vector<std::int64_t> index(outer, 0);
  for (std::int64_t left = elements_of(common) / run; left > 0; --left) {
    std::memcpy(target, source, bytes(run));
    for (std::size_t d = outer; d-- > 0;) {
      const bool wraps = ++index[d] == common[d].size();
      const std::int64_t moved = wraps ? 1 - common[d].size() : 1;
      if (wraps) index[d] = 0;
      source += static_cast<std::ptrdiff_t>(element_bytes) * moved * from_strides[d];
      target += static_cast<std::ptrdiff_t>(element_bytes) * moved * to_strides[d];
      if (!wraps) break;
    }
  }
}

}  // namespace trireme
