#include "trireme/data/sampling/mixture.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "trireme/base/error.hpp"

namespace trireme::data {
namespace {

using Quotas = std::vector<std::int64_t>;

// Shares in fixed point, units of 2^-46: quotas must be identical on every machine, and compilers differ in rounding a
// fused multiply-add. Multiplied by the largest block they fit in 63 bits.
constexpr int kShareBits = 46;
using Shares = std::vector<std::int64_t>;

struct Remainder {
  std::int64_t size;
  std::size_t source;
};

/// Largest-remainder method: the sum is `block`, each quota differs from its share by less than 1. Ties are broken in
/// favour of earlier sources. `remainders` is scratch space.
void apportion(const Shares& shares, std::int64_t block, Quotas& quotas, std::vector<Remainder>& remainders) {
  std::int64_t left = block;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const std::int64_t exact = shares[i] * block;
    quotas[i] = exact >> kShareBits;
    remainders[i] = {exact - (quotas[i] << kShareBits), i};
    left -= quotas[i];
  }
  const auto larger = [](const Remainder& a, const Remainder& b) {
    return a.size != b.size ? a.size > b.size : a.source < b.source;
  };
  std::ranges::nth_element(remainders, remainders.begin() + left, larger);
  for (std::int64_t i = 0; i < left; ++i) ++quotas[remainders[static_cast<std::size_t>(i)].source];
}

/// The relative error of the worst source.
double worst_error(const Shares& shares, const Quotas& quotas, std::int64_t block) {
  double worst = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (quotas[i] == 0) return std::numeric_limits<double>::infinity();
    const double ratio = static_cast<double>(quotas[i] << kShareBits) / static_cast<double>(shares[i] * block);
    worst = std::max(worst, std::abs(ratio - 1));
  }
  return worst;
}

/// Empty if no block length has a draw of every source.
Quotas best_quotas(const Shares& shares) {
  constexpr double kExact = 1e-9;  // the smallest share, 2^-16, is known to 2^-31
  Quotas best, quotas(shares.size());
  std::vector<Remainder> remainders(shares.size());
  double smallest = std::numeric_limits<double>::infinity();
  for (std::int64_t block = Mixture::kMinBlock; block <= Mixture::kMaxBlock && smallest > kExact; ++block) {
    apportion(shares, block, quotas, remainders);
    const double error = worst_error(shares, quotas, block);
    if (error < smallest) {
      smallest = error;
      best = quotas;
    }
  }
  return best;
}

}  // namespace

Mixture::Mixture(std::span<const double> weights, const RandomStream& stream) {
  require(!weights.empty(), "a mixture of no sources");
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  Shares shares;
  for (const double weight : weights) {
    require<ConfigError>(std::isfinite(total) && weight > 0 && weight / total * static_cast<double>(kMaxBlock) >= 1,
                         "weight ", weight, " of a data source: less than 1/65,536 of the sum of the weights, ", total,
                         "\n  fix: a larger weight, or leave the source out");
    shares.push_back(std::llround(std::ldexp(weight / total, kShareBits)));
  }
  if (shares.size() == 1) {
    quotas_ = {1};
    slots_ = {{0, 0}};
    return;
  }
  quotas_ = best_quotas(shares);
  require<ConfigError>(!quotas_.empty(), weights.size(), " data sources with weights from ",
                       *std::ranges::min_element(weights), " to ", *std::ranges::max_element(weights),
                       ": no block of up to 65,536 draws has one of each\n  fix: larger weights for the smallest");

  struct Place {
    double at;  // in [0, 1)
    Slot slot;
  };
  std::vector<Place> places;
  std::uint64_t number = 0;
  for (std::size_t source = 0; source < quotas_.size(); ++source)
    for (std::int64_t i = 0; i < quotas_[source]; ++i)
      places.push_back({(static_cast<double>(i) + stream.uniform(number++)) / static_cast<double>(quotas_[source]),
                        {static_cast<std::uint32_t>(source), static_cast<std::uint32_t>(i)}});
  std::ranges::sort(places, {},
                    [](const Place& place) { return std::tuple(place.at, place.slot.source, place.slot.index); });
  for (const Place& place : places) slots_.push_back(place.slot);
}

Mixture::Draw Mixture::draw(std::int64_t j) const {
  const std::int64_t blocks = j / block();
  const Slot slot = slots_[static_cast<std::size_t>(j - blocks * block())];
  return {slot.source, blocks * quotas_[slot.source] + slot.index};
}

std::int64_t Mixture::count(std::size_t source, std::int64_t draws) const {
  const std::int64_t blocks = draws / block(), rest = draws % block();
  return blocks * quotas_[source] + std::ranges::count(slots_.begin(), slots_.begin() + rest, source, &Slot::source);
}

}  // namespace trireme::data
