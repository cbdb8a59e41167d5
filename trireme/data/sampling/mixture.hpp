#pragma once
// Weighted mixture of data sources: which source each draw comes from, with random access to any draw.
#include <cstdint>
#include <span>
#include <vector>

#include "trireme/base/philox.hpp"

namespace trireme::data {

/// Note [Mixture by blocks]: draws come in blocks, each with a fixed number of draws of every source (its quota) in the
/// same order. The block length, from 1,024 to 65,536, is the one with the smallest worst-case error over the sources:
/// it is exact if weights of up to four decimals sum to 1; otherwise every source has its share to within a factor of 1
/// +- 1/(65,536 w), w being the smallest share. A source with less than one draw in 65,536 is rejected.
///
/// Within the block the draws of each source are spread evenly (stratified), each at a random place in an equal part of
/// the block. So after any number j of draws, with n sources, a source with quota q in a block of b has had j q/b draws
/// to within 1 + n q/b: every step sees the mixture, and the pattern has no period that coincides with the ranks.
class Mixture {
 public:
  /// ConfigError if a weight is too small. Weights must be > 0; a source's index is its position here.
  Mixture(std::span<const double> weights, const RandomStream& stream);

  struct Draw {
    std::size_t source;
    std::int64_t index;  // number of earlier draws of this source
  };
  Draw draw(std::int64_t j) const;

  /// The number of draws of that source among the first `draws`.
  std::int64_t count(std::size_t source, std::int64_t draws) const;

  std::int64_t block() const { return static_cast<std::int64_t>(slots_.size()); }
  std::int64_t quota(std::size_t source) const { return quotas_[source]; }

  static constexpr std::int64_t kMinBlock = 1024, kMaxBlock = 65'536;

 private:
  struct Slot {
    std::uint32_t source, index;
  };
  std::vector<std::int64_t> quotas_;
  std::vector<Slot> slots_;  // the draws of one block
};

}  // namespace trireme::data
