#include "trireme/data/tokens/lanes.hpp"

#include <algorithm>
#include <cstring>

namespace trireme::data {
namespace {

constexpr std::size_t kLanes = 4;
typedef std::uint32_t Narrow __attribute__((vector_size(16)));
typedef std::int64_t Wide __attribute__((vector_size(32)));
typedef std::int64_t Pair __attribute__((vector_size(16)));
typedef std::uint16_t Halves __attribute__((vector_size(16)));
typedef std::uint32_t Wholes __attribute__((vector_size(32)));

Narrow loaded(const std::uint32_t* from) {
  Narrow vector;
  std::memcpy(&vector, from, sizeof vector);
  return vector;
}

/// to[i] = from[i], eight at a time.
template <class From, class To, class T, class U>
void convert(std::span<const T> from, U* to) {
  std::size_t i = 0;
  for (; i + 8 <= from.size(); i += 8) {
    From eight;
    std::memcpy(&eight, from.data() + i, sizeof eight);
    const To converted = __builtin_convertvector(eight, To);
    std::memcpy(to + i, &converted, sizeof converted);
  }
  for (; i < from.size(); ++i) to[i] = static_cast<U>(from[i]);
}

}  // namespace

std::uint32_t largest(std::span<const std::uint32_t> tokens) {
  const auto larger = [](Narrow a, Narrow b) { return a > b ? a : b; };
  Narrow a = {}, b = {}, c = {}, d = {};  // four accumulators, to hide the latency of the dependency chain
  const std::uint32_t* at = tokens.data();
  std::size_t left = tokens.size();
  for (; left >= 4 * kLanes; left -= 4 * kLanes, at += 4 * kLanes) {
    a = larger(a, loaded(at));
    b = larger(b, loaded(at + kLanes));
    c = larger(c, loaded(at + 2 * kLanes));
    d = larger(d, loaded(at + 3 * kLanes));
  }
  a = larger(larger(a, b), larger(c, d));
  std::uint32_t maximum = std::max(std::max(a[0], a[1]), std::max(a[2], a[3]));
  for (; left > 0; --left) maximum = std::max(maximum, *at++);
  return maximum;
}

void widen(std::span<const std::uint16_t> from, std::uint32_t* to) { convert<Halves, Wholes>(from, to); }

void narrow(std::span<const std::uint32_t> from, std::uint16_t* to) { convert<Wholes, Halves>(from, to); }

void write_tokens_and_labels(const std::uint32_t* from, std::size_t count, std::int64_t* tokens, std::int64_t* labels) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Wide token = __builtin_convertvector(loaded(from + i), Wide);
    const Wide label = __builtin_convertvector(loaded(from + i + 1), Wide);
    std::memcpy(tokens + i, &token, sizeof token);
    std::memcpy(labels + i, &label, sizeof label);
  }
  for (; i < count; ++i) {
    tokens[i] = from[i];
    labels[i] = from[i + 1];
  }
}

void write_counted(std::int64_t first, std::size_t count, std::int64_t* to) {
  // Two counters of two numbers each: a vector wider than a register would be kept in memory.
  Pair low = Pair{0, 1} + first, high = low + 2;
  const Pair step = Pair{} + 4;
  std::size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    std::memcpy(to + i, &low, sizeof low);
    std::memcpy(to + i + 2, &high, sizeof high);
    low += step;
    high += step;
  }
  for (; i < count; ++i) to[i] = first + static_cast<std::int64_t>(i);
}

}  // namespace trireme::data
